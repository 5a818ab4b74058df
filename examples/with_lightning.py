"""A LightningModule with a kinspace loss and sampler: `python examples/with_lightning.py`.

Lightning calls `set_epoch` of the sampler by itself. On several devices give the sampler `rank` and
`world_size` and the Trainer `use_distributed_sampler=False`, and the loss the rows of `gather`, as
here. Data and network are those of distributed.py.
"""

import logging
import warnings
from typing import Any

import lightning
import torch
from distributed import DIM, digits, network, recall
from torch import Tensor
from torch.utils.data import DataLoader

from kinspace.distributed import gather
from kinspace.losses import ProxyAnchor
from kinspace.samplers import classes_by_samples


class MetricModule(lightning.LightningModule):  # type: ignore[misc]
    """A network and its loss; Lightning saves the proxies and gives them to the optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.criterion = ProxyAnchor(num_classes=10, dim=DIM)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        """The loss of the whole batch on every device."""
        pixels, labels = batch
        loss: Tensor = self.criterion(*gather(self.net(pixels), labels, averaged=True))
        return loss

    def configure_optimizers(self) -> Any:
        """Proxies learn faster."""
        fast: dict[str, Any] = {"params": self.criterion.parameters(), "lr": 0.1}
        return torch.optim.AdamW([{"params": self.net.parameters()}, fast], lr=3e-3)

    def train_dataloader(self) -> Any:
        """Batches of 8 classes with 8 samples each."""
        data = digits(train=True)
        world = self.trainer.world_size
        sampler = classes_by_samples(
            data.tensors[1], classes=8, samples=8, rank=self.trainer.global_rank, world_size=world
        )
        return DataLoader(data, batch_sampler=sampler)


def main() -> None:
    """Train and print Recall@1 before and after."""
    warnings.simplefilter("ignore")  # of few data workers
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(1)
    module = MetricModule()
    before = recall(module.net, device=torch.device("cpu"))
    trainer = lightning.Trainer(
        max_epochs=4,
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    after = recall(module.net.cpu(), device=torch.device("cpu"))
    print(f"Recall@1 on rows never seen: {before:.1%} before, {after:.1%} after")


if __name__ == "__main__":
    main()
