"""The Trainer of transformers with a kinspace loss and sampler: `python with_transformers.py`.

`compute_loss` is where the Trainer asks for the loss, `get_train_dataloader` for the batches. The
loss is a part of the model, so that the optimizer has its proxies and checkpoints keep them. Data
and network are those of distributed.py.
"""

import tempfile
from typing import Any

import torch
from distributed import DIM, digits, network, recall
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import Trainer, TrainingArguments

from kinspace.losses import ProxyAnchor
from kinspace.samplers import classes_by_samples


class WithLoss(nn.Module):
    """A network and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.criterion = ProxyAnchor(num_classes=10, dim=DIM)

    def forward(self, pixels: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The loss, and the embeddings."""
        embeddings = self.net(pixels)
        return {"loss": self.criterion(embeddings, labels), "embeddings": embeddings}


class MetricTrainer(Trainer):  # type: ignore[misc]
    """A Trainer on batches of classes."""

    def get_train_dataloader(self) -> Any:
        """Batches of 8 classes with 8 samples each; on several processes a share of each."""
        data: Any = self.train_dataset
        sampler = classes_by_samples(data.tensors[1], classes=8, samples=8)
        loader = DataLoader(data, batch_sampler=sampler, collate_fn=_named)
        return self.accelerator.prepare(loader)

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """The loss of a batch."""
        return model(**inputs)["loss"]


def _named(rows: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    pixels, labels = zip(*rows, strict=True)
    return {"pixels": torch.stack(pixels), "labels": torch.stack(labels)}


def main() -> None:
    """Train and print Recall@1 before and after."""
    data: TensorDataset = digits(train=True)
    torch.manual_seed(1)
    model = WithLoss()
    before = recall(model.net, device=torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=4,
            learning_rate=1e-2,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            remove_unused_columns=False,
        )
        MetricTrainer(model, arguments, train_dataset=data).train()
    net = model.net.cpu()
    after = recall(net, device=torch.device("cpu"))
    print(f"Recall@1 on rows never seen: {before:.1%} before, {after:.1%} after")


if __name__ == "__main__":
    main()
