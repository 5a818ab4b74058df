"""What Lightning, Accelerate and the Trainer of transformers look for in a batch sampler."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from kinspace.losses import SupCon
from kinspace.samplers import classes_by_samples
from samplers import ALL, Case

each_case = pytest.mark.parametrize("case", ALL)
# neighborhoods depend on the losses seen so far
repeatable = pytest.mark.parametrize("case", [p for p in ALL if p.values[0].covers])


@repeatable
def test_set_epoch_gives_the_epoch_of_an_unbroken_sequence(case: Case) -> None:
    for options in ({}, {"batches_per_epoch": 5}):
        sampler = case.build(**options)
        epochs = [list(sampler) for _ in range(4)]
        other = case.build(**options)
        for epoch in (2, 0, 3, 3, 1):
            other.set_epoch(epoch)
            assert list(other) == epochs[epoch]


@each_case
def test_set_epoch_once_an_epoch_changes_nothing(case: Case) -> None:
    plain, told = case.build(), case.build()
    for epoch in range(3):
        told.set_epoch(epoch)
        first, second = [], []
        for found, sampler in ((first, plain), (second, told)):
            for batch in sampler:
                found.append(batch)
                sampler.advance()
        assert first == second


@repeatable
def test_set_epoch_leaves_a_loaded_position_of_that_epoch(case: Case) -> None:
    sampler = case.build()
    list(sampler)
    for _ in islice(sampler, 2):
        sampler.advance()
    resumed = case.resume(case.save(sampler))
    resumed.set_epoch(1)
    whole = case.build()
    whole.set_epoch(1)
    assert list(resumed) == list(whole)[2:]


@each_case
def test_says_its_batch_size_and_whether_all_batches_are_full(case: Case) -> None:
    sampler = case.build()
    sizes = {len(batch) for _ in range(3) for batch in sampler}
    assert max(sizes) <= sampler.batch_size
    assert not sampler.drop_last or sizes == {sampler.batch_size}
    assert sampler.sampler is sampler


def test_an_epoch_is_a_whole_number() -> None:
    for wrong in (-1, 0.5, "1"):
        with pytest.raises(ValueError, match=r"^epoch: expected "):
            classes_by_samples([0, 0, 1, 1], classes=2, samples=1).set_epoch(wrong)  # type: ignore[arg-type]


def loader_of(sampler: Any) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(torch.arange(96), torch.arange(96) // 8), batch_sampler=sampler)


def test_accelerate_gives_each_process_its_part_of_the_same_batches() -> None:
    data_loader = pytest.importorskip("accelerate.data_loader")
    labels = torch.arange(96) // 8
    whole = classes_by_samples(labels, classes=4, samples=4)
    epochs = [list(whole) for _ in range(3)]
    parts = [
        data_loader.prepare_data_loader(
            loader_of(classes_by_samples(labels, classes=4, samples=4)),
            device=torch.device("cpu"),
            num_processes=2,
            process_index=process,
            split_batches=True,
        )
        for process in range(2)
    ]
    for epoch in epochs:
        found = [[numbers.tolist() for numbers, _ in part] for part in parts]
        assert [first + second for first, second in zip(*found, strict=True)] == epoch


class Embedding(nn.Module):
    """A model as the Trainer of transformers calls it: named inputs, a loss among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.criterion = SupCon()
        self.seen: list[list[int]] = []

    def forward(self, pixels: Tensor, labels: Tensor, number: Tensor) -> dict[str, Tensor]:
        self.seen.append(number.tolist())
        return {"loss": self.criterion(self.layer(pixels), labels)}


@pytest.mark.slow
def test_the_trainer_of_transformers_goes_through_the_epochs(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    labels = torch.arange(32) // 4
    rows = [
        {"pixels": torch.randn(8), "labels": label, "number": torch.tensor(number)}
        for number, label in enumerate(labels)
    ]

    class WithOurBatches(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> DataLoader[Any]:
            return DataLoader(
                self.train_dataset, batch_sampler=classes_by_samples(labels, classes=4, samples=2)
            )

    model = Embedding()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    WithOurBatches(model=model, args=arguments, train_dataset=rows).train()
    sampler = classes_by_samples(labels, classes=4, samples=2)
    assert model.seen == [batch for _ in range(3) for batch in sampler]
