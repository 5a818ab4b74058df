"""A run: the folder that a training writes, and the one way to open it.

A run without training (`kinspace.inference.pretrained_run`) has the same folder: the model is a
pretrained backbone, all of its data is the test part, and it has no metrics, recipe.toml or start.

run = kinspace.train("photos/", method="nra")      # or Run("runs/photos-nra-1")
run.results["selected"]["recall@1"]
run.model().encode("a.jpg")
run.embeddings("test")

run.json           what was run: data, split, recipe, settings, classes, versions
recipe.toml        the recipe, complete
selection.json     the settings that were tried on held-out training classes, and the choice
metrics.jsonl      a row of numbers every few steps
start.safetensors  the weights before the first step
last.safetensors   everything the next step needs
model.safetensors  the chosen weights: best on the validation classes, else the last
results.json       measures on the test part, beside the untrained backbone and raw pixels
final/             a run with the same settings on all classes (`final`): the model to use
embeddings/        tables that `Run.embeddings` has made
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from kinspace._core.atomic_files import read_json
from kinspace._core.checks import plural
from kinspace.data import Dataset
from kinspace.data.load import load_dataset
from kinspace.data.named_splits import split_names
from kinspace.embeddings import EmbeddingTable
from kinspace.models import DEFAULT_BACKBONE
from kinspace.recipes import Recipe
from kinspace.training.run_folder import FORMAT, read_metrics

if TYPE_CHECKING:  # inference stands on runs
    from kinspace.inference.model import EmbeddingModel

__all__ = [
    "CONFIG",
    "PARTS",
    "UNTRAINED",
    "Run",
    "Splits",
    "data_source",
    "load_run_data",
    "open_run",
]

CONFIG = "config.json"  # in place of run.json in a model repository
PARTS = ("train", "validation", "test")
UNSEEN = ("zero_shot", "random_classes")  # splits whose test classes no training has seen
UNTRAINED = "none"  # the split of a run without training: all data is its test part


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _pairs(value: Any) -> bool:
    return isinstance(value, list) and all(_texts(each) and len(each) == 2 for each in value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _measures(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("recall@1"), (int, float))


def _each(value: Any, allowed: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(allowed, value.values()))


# the entries of run.json that a run cannot be opened without, and what they are
NEEDED: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, (dict, str)),
    "transform": lambda value: value is None or isinstance(value, dict),
    "recipe": lambda value: isinstance(value, dict),
    "data": lambda value: isinstance(value, str),
    "split": lambda value: isinstance(value, str),
    "seed": _count,
    "classes": lambda value: _each(value, _texts),
    "pictures": lambda value: _each(value, _count),
    "skipped": _pairs,
    "notes": _texts,
    "settings": lambda value: isinstance(value, dict),
}
MEASURED = ("selected", "untrained", "pixels")  # what results.json has measures of


@dataclass(frozen=True, eq=False)
class Splits:
    """The data of a run in the parts it had, without the pictures that were skipped.

    whole: the data set that the others are parts of. test: what to evaluate on; the training part
    where the run trained on everything, and the whole of another data set. own: whether it is the
    run's own data. notes: what a reader of an evaluation should know.
    """

    whole: Dataset
    train: Dataset | None
    validation: Dataset | None
    test: Dataset
    own: bool = True
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> dict[str, Dataset]:
        """The parts by name; none of them twice."""
        named = {"train": self.train, "validation": self.validation}
        if self.test is not self.train:
            named["test"] = self.test
        return {name: part for name, part in named.items() if part is not None}


@dataclass(frozen=True, init=False)
class Run:
    """A run folder; `open_run` checks that there is a run in it.

    >>> Run("runs/nothing").finished
    False
    """

    folder: Path

    def __init__(self, folder: str | Path) -> None:
        object.__setattr__(self, "folder", Path(folder))

    @property
    def about(self) -> dict[str, Any]:
        """run.json; a ValueError where something that is needed to open the run is missing.

        A model repository has config.json in its place.
        """
        path = _about_file(self.folder)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path}: expected what was run, got no readable JSON: {error}"
            ) from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path}: expected a run of format {FORMAT}, got another")
        for name, is_right in NEEDED.items():
            if name not in found or not is_right(found[name]):
                raise ValueError(
                    f"{path}: expected an entry {name!r}, got none or another kind of it"
                )
        return found

    @property
    def recipe(self) -> Recipe:
        """The recipe, as the run had it."""
        return Recipe.from_dict(self.about["recipe"])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def results(self) -> dict[str, Any]:
        """results.json; empty before the training has ended."""
        path = self.folder / "results.json"
        found = read_json(path) if path.exists() else {}
        steps = {name: found[name] for name in ("steps", "selected_step") if name in found}
        measured = [found[name] for name in MEASURED if found.get(name) is not None]
        right = _each(steps, _count) and all(map(_measures, measured))
        if right and measured and found.get("selected"):
            right = len(steps) == 2 and _count(found["selected"].get("queries"))
        if not right:
            raise ValueError(f"{path}: expected the results of a training, got others")
        return found

    @property
    def verdict(self) -> list[str]:
        """The result of the training in sentences, beside the baselines.

        >>> Run("runs/nothing").verdict
        []
        """
        if (judge := self.evaluated_by) is not None:
            count = plural(len(self.about["classes"]["train"]), "class", "classes")
            return [f"Trained on all {count}. Expect what {judge.folder} found:", *judge.verdict]
        results, found = self.results, self.results.get("selected")
        if not found:
            return []
        classes = plural(len(self.about["classes"].get("test", ())), "class", "classes")
        unseen = " never seen in training" if self.about["split"] in UNSEEN else ""
        recall = found["recall@1"]
        sentences = [
            f"For {plural(found['queries'], 'picture')} of {classes}{unseen}, the nearest other "
            f"picture is of the same class in {recall:.1%} of cases."
        ]
        kept = results["steps"] == 0
        for key, name in {"untrained": f"the {self.start_name}", "pixels": "raw pixels"}.items():
            if key in results and not (kept and key == "untrained"):
                points = 100 * (recall - results[key]["recall@1"])
                than = f"{name} ({results[key]['recall@1']:.1%})"
                if abs(points) < 0.05:
                    sentences.append(f"That is as much as {than}.")
                else:
                    word = "more" if points > 0 else "LESS"
                    sentences.append(f"That is {abs(points):.1f} points {word} than {than}.")
        if kept:
            selection = self.selection or {}
            why = "No training was better than the backbone as it is on held-out classes"
            if not selection.get("candidates", True):
                why = (
                    "The classes are too few to tell on held-out ones whether a training is better"
                )
            sentences.append(
                f"{why}, so the model is that ({selection.get('chosen', 'features')})."
            )
        elif results["selected_step"] == 0:
            sentences.append(
                "No step of the training was better than its start on the validation classes, so "
                "the model is the start."
            )
        return sentences

    @property
    def start_name(self) -> str:
        """What the network is before its first step: a pretrained backbone or an untrained one."""
        model = self.about.get("recipe", {}).get("model", {})
        pretrained = model.get("pretrained") or model.get("weights")
        return "pretrained backbone" if pretrained else "untrained backbone"

    @property
    def evaluated_by(self) -> Run | None:
        """The run that tells how good this one is expected to be: of one with all classes."""
        where = self.about.get("evaluated_by") if _about_file(self.folder).exists() else None
        return None if where is None else Run((self.folder / where).resolve())

    @property
    def selection(self) -> dict[str, Any] | None:
        """selection.json: the settings that were tried, and the choice; None without a search."""
        path = self.folder / "selection.json"
        return read_json(path) if path.exists() else None

    @property
    def trained(self) -> bool:
        """Whether a training made the run, not `pretrained_run`."""
        return bool(self.about.get("split") != UNTRAINED)

    @property
    def trained_classes(self) -> frozenset[str]:
        """The names of the classes that the weights were trained on; none if step 0 was chosen."""
        if not self.trained or self.results.get("selected_step") == 0:
            return frozenset()
        return frozenset(self.about["classes"].get("train", ()))

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return (self.folder / "results.json").exists()

    @property
    def indexed(self) -> bool:
        """Whether `kinspace index` has made a gallery."""
        return (self.folder / "gallery.npz").exists()

    def splits(self, data: Any = None) -> Splits:
        """The parts of the run's data; of another data set one part, the test.

        data: where the run's data is now, another data set, or the `Splits` of an earlier call.
        """
        if isinstance(data, Splits):
            return data
        about = self.about
        whole = _without(self._opened(data), [name for name, _ in about["skipped"]])
        fraction = self.recipe.validation.fraction
        found: tuple[Dataset | None, Dataset | None, Dataset | None] = (None, None, whole)
        try:
            if about["split"] != UNTRAINED:
                found = split_names(whole, about["split"], validation=fraction, seed=about["seed"])
        except ValueError:  # this data cannot be divided so
            found = (whole, None, None)
        parts = {name: part for name, part in zip(PARTS, found, strict=True) if part is not None}
        classes = {name: list(part.class_names) for name, part in parts.items()}
        sizes = {name: len(part) for name, part in parts.items()}
        if classes == about["classes"] and sizes == about["pictures"]:
            train, validation, test = found
            note = "nothing was kept for a test: these are the pictures trained on"
            notes = (note,) if test is None else ()
            tested = test or train
            assert tested is not None
            return Splits(whole, train, validation, tested, notes=notes)
        if data is None:
            raise ValueError(
                f"{self.folder}: the data is not what the run was made of, pictures or classes "
                "differ; say which data to use: DATA"
            )
        return Splits(whole, None, None, whole, own=False, notes=_other_data(whole, about))

    def _opened(self, data: Any) -> Dataset:
        if data is not None:
            named = self.about.get("columns") if Path(str(data)).is_file() else None
            return load_dataset(data, columns=named, allow_outside=_outside_allowed(self.about))
        if (self.folder / "hierarchy.json").exists():
            raise ValueError(
                f"{self.folder}: a run of kinspace hierarchy, on merged classes; its "
                "hierarchy.json has the errors; to evaluate it on other classes, say which data: "
                "DATA"
            )
        try:
            return load_run_data(self.about)
        except ValueError as error:
            reason = str(error).partition("; expected")[0]  # without what else could be opened
            raise ValueError(
                f"{self.folder}: its data cannot be opened ({reason}); say where it is now: DATA"
            ) from None

    def model(
        self,
        device: str | torch.device | None = None,
        module: nn.Module | None = None,
        *,
        with_gallery: bool = True,
    ) -> EmbeddingModel:
        """The trained model, with its gallery and thresholds if `kinspace index` has made them.

        device: by default a GPU if there is one. module: of a run that was trained with a module
        of your own, one like it; its weights are replaced by those of the run. with_gallery: False:
        the gallery is not read.
        """
        from kinspace.inference.loader import open_model

        return open_model(self, device, module, with_gallery=with_gallery)

    def embeddings(
        self,
        part: str = "test",
        *,
        by: str = "model",
        data: Any = None,
        device: str | torch.device | None = None,
        module: nn.Module | None = None,
        status: Callable[[str], object] = lambda text: None,
    ) -> EmbeddingTable:
        """The embeddings of a part: made once, then read from the run folder.

        They are made again when the weights or the pictures change.

        part: "train", "validation", "test", or "all" for the whole data set in its order.
        by: "model", of length 1; "untrained", the features of the backbone before the first step;
        or "pixels". data: as for `splits`. module: as for `model`.
        """
        from kinspace.inference.run_embeddings import RunEmbeddings

        opened = RunEmbeddings(self, self.splits(data), device=device, module=module, status=status)
        return opened.table(part, by)

    def save_repository(
        self,
        folder: str | Path,
        *,
        license: str | None = None,  # noqa: A002 - as the Hub calls it
        gallery: bool = False,
    ) -> Path:
        """Write the run as a model repository: config.json, model.safetensors and a model card.

        license: an identifier of the Hugging Face Hub for the card, "mit". gallery: with the
        gallery, which has the vectors, classes and file names of your pictures.
        """
        from kinspace.hub import save_repository

        return save_repository(self, folder, license=license, gallery=gallery)

    def push_to_hub(
        self,
        name: str,
        *,
        license: str | None = None,  # noqa: A002 - as the Hub calls it
        gallery: bool = False,
        private: bool = True,
        token: str | None = None,
    ) -> str:
        """Push the run to the Hugging Face Hub, "user/model"; returns its address (extra `hub`).

        license, gallery: as of `save_repository`. private: of a repository that is new. token: by
        default that of `hf auth login` or HF_TOKEN.

        >>> Run("runs/photos-nra-1").push_to_hub("me/photos", license="mit")  # doctest: +SKIP
        'https://huggingface.co/me/photos'
        """
        from kinspace.hub import push_to_hub

        return push_to_hub(
            self, name, license=license, gallery=gallery, private=private, token=token
        )


def _about_file(folder: Path) -> Path:
    own, public = folder / "run.json", folder / CONFIG
    return public if public.exists() and not own.exists() else own


def open_run(folder: str | Path) -> Run:
    """The run in a folder; a ValueError if there is none.

    >>> open_run("runs/nothing")
    Traceback (most recent call last):
    ValueError: runs/nothing: expected a run folder, got no such folder
    """
    folder = Path(folder)
    if not folder.exists():
        raise ValueError(f"{folder}: expected a run folder, got no such folder")
    if not _about_file(folder).exists():
        came = "one without run.json" if folder.is_dir() else "a file"
        raise ValueError(
            f"{folder}: expected a run folder, got {came}; to search pictures without training: "
            f"kinspace index --backbone {DEFAULT_BACKBONE} {folder}"
        )
    return Run(folder)


def data_source(about: Mapping[str, Any]) -> str:
    """The data of a run as `load_dataset` takes it, also from another working folder.

    >>> data_source({"data": "no such/photos", "working_folder": "/home/me"})
    'no such/photos'
    """
    name = str(about["data"])
    there = Path(str(about.get("working_folder", "."))) / name
    try:
        return str(there) if not Path(name).exists() and there.exists() else name
    except (OSError, ValueError):  # no path at all: `load_dataset` says so
        return name


def load_run_data(about: Mapping[str, Any]) -> Dataset:
    """The whole data set of a run, by what its run.json says."""
    labeled = None if about.get("labeled", True) else False
    return load_dataset(
        data_source(about),
        labeled=labeled,
        columns=about.get("columns"),
        allow_outside=_outside_allowed(about),
    )


def _outside_allowed(about: Mapping[str, Any]) -> bool:
    """Whether the run was made with a table that may name pictures outside its folder."""
    return bool(about.get("settings", {}).get("allow_outside", False))


def _without(dataset: Dataset, skipped: Sequence[str]) -> Dataset:
    if not skipped:
        return dataset
    bad = set(skipped)
    names = [dataset.pictures.name(index) for index in range(len(dataset))]
    good = [place for place, name in enumerate(names) if name not in bad]
    return dataset if len(good) == len(names) else dataset.subset(good)


def _other_data(whole: Dataset, about: dict[str, Any]) -> tuple[str, ...]:
    notes = [f"evaluated on other data than it was made of: {whole.name}"]
    if shared := set(about["classes"].get("train", ())) & set(whole.class_names):
        notes.append(f"classes with the name of one trained on: {len(shared):,}")
    return tuple(notes)
