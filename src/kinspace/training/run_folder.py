"""The files of a run folder; `kinspace.run` opens it.

    RUN/run.json, recipe.toml           what was started: data, split, recipe, seed
    RUN/selection.json, selection/      the search for settings (`kinspace.training.selection`)
    RUN/metrics.jsonl                   a row of numbers every few steps (`kinspace.training.log`)
    RUN/last.safetensors                checkpoint to resume from
    RUN/model.safetensors               the chosen weights
    RUN/embeddings/test.npz             the test part by the chosen weights
    RUN/embeddings/test.json            what it was made of
    RUN/embeddings/test-untrained.npz   by the backbone before the first step; test-pixels.npz
    RUN/embeddings/other/test.npz       of another data set, the last one

A checkpoint is one safetensors file: tensors by name, the rest (step, positions, best validation)
as JSON in its header. It is written atomically: after a crash there is the old file or the new one.
Reading runs no code.

The training writes the first embeddings; `Run.embeddings` makes the others when they are needed. A
file of embeddings is valid while weights, transform and pictures are those it was made from.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from kinspace._core.atomic_files import clear_parts, read_json, write_atomically, write_json
from kinspace._core.checks import plural
from kinspace.data.dataset import Dataset
from kinspace.data.in_memory import SampleInputs
from kinspace.data.pictures import PictureSubset, fingerprint
from kinspace.distributed import broadcast_from_main, is_main_process
from kinspace.embeddings import EmbeddingTable
from kinspace.recipes import Recipe

__all__ = [
    "FORMAT",
    "LOCK",
    "WEIGHTS",
    "EmbeddingFile",
    "create_run",
    "hardware",
    "new_folder",
    "read_checkpoint",
    "read_metrics",
    "recipe_in_force",
    "require_same",
    "resume_run",
    "write_checkpoint",
    "write_run",
]

FORMAT = 1  # of run.json and the files beside it
# what a resumed run has to share with the run as it was started
_SAME = ("split", "seed", "classes", "recipe", "contents")  # the seed before the classes it draws
LOCK = "run.lock"  # held by the process that trains
_HEADER, _CHECKSUM = "kinspace", "checksum"
WEIGHTS = {"model": "model.safetensors", "untrained": "start.safetensors", "pixels": None}


def new_folder(out: str | Path | None, name: str) -> Path:
    """Make the folder of a new run: `out`, if it is empty or new; None: runs/NAME-NUMBER.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     new_folder(f"{parent}/mine", "moths-nra").name
    'mine'
    """
    if out is None:
        number = 1
        while (folder := Path("runs") / f"{name}-{number}").exists():
            number += 1
    else:
        folder = Path(out)
        if (folder / "run.json").exists():
            raise ValueError(
                f"{folder}: has a run already; resume it (--resume {folder}) or name another folder"
            )
        if folder.is_dir():
            clear_parts(folder)
        # a process that was killed before it wrote run.json has begun nothing
        if folder.exists() and (
            not folder.is_dir() or {path.name for path in folder.iterdir()} - {"recipe.toml", LOCK}
        ):
            raise ValueError(f"{folder}: expected a new or empty folder, got one with other files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder


def create_run(out: str | Path | None, name: str, about: Mapping[str, Any], recipe: Recipe) -> Path:
    """Make the folder of a new run, with run.json and recipe.toml; the same on every process."""
    folder = Path(broadcast_from_main(str(new_folder(out, name)) if is_main_process() else ""))
    if is_main_process():
        write_run(folder, about, recipe)
    return folder


def write_run(folder: Path, about: Mapping[str, Any], recipe: Recipe) -> None:
    """Write run.json and recipe.toml; run.json, which makes the folder a run, comes last."""
    text = recipe.to_toml()
    write_atomically(folder / "recipe.toml", lambda part: part.write_text(text, encoding="utf-8"))
    write_json(folder / "run.json", about)


def resume_run(
    out: str | Path | None, about: Mapping[str, Any]
) -> tuple[Path, tuple[dict[str, Tensor], dict[str, Any]] | None]:
    """The folder of a run to resume, and its last checkpoint; None: it was stopped before one."""
    from kinspace.run import open_run

    if out is None:
        raise ValueError("resume: expected the run folder in `out`")
    run = open_run(out)
    require_same(run.about, about, run.folder)
    if is_main_process():
        clear_parts(run.folder)
    last = run.folder / "last.safetensors"
    return run.folder, read_checkpoint(last) if last.exists() else None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows of a metrics.jsonl; an incomplete last line, after a crash, is left out."""
    rows: list[dict[str, Any]] = []
    data = path.read_bytes() if path.exists() else b""
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not (isinstance(row["phase"], int) and isinstance(row["step"], int)):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            if number == len(lines) and not data.endswith(b"\n"):
                break
            raise ValueError(
                f"{path}: line {number}: expected a row of metrics with its phase and step, got "
                f"{line[:60]!r}"
            ) from None
        rows.append(row)
    return rows


def recipe_in_force(out: str | Path | None, given: Recipe) -> Recipe:
    """The recipe that a run of the given one trains by now: with what its search has chosen."""
    try:
        about = read_json(Path(out or "") / "run.json")
        known = _plain(about.get("given")) == _plain(given.to_dict())
        return Recipe.from_dict(about["recipe"]) if known else given
    except (OSError, ValueError, KeyError, AttributeError):
        return given  # `resume_run` says what is wrong


def require_same(found: Mapping[str, Any], given: Mapping[str, Any], folder: Path) -> None:
    """A ValueError if a run was started with another recipe, data or seed."""
    # a run from before there were fingerprints is known by the name of its data
    for key in _SAME if "contents" in found else ("data", *_SAME[:-1]):
        there, here = _plain(found.get(key)), _plain(given.get(key))
        if there != here:
            raise ValueError(
                f"{folder}: is a run of another {key}: {_difference(key, there, here)}; resume it "
                "with what it was started with, or start a new run in another folder"
            )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples become lists


def _difference(key: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return _difference(f"{key}.{name}", there.get(name), here.get(name))
    if key == "contents":
        return "its pictures have other names or sizes now"
    return f"{key} is {there!r} there, {here!r} here"


def hardware(device: torch.device) -> dict[str, str]:
    """The device and the versions of Python and PyTorch, for run.json."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
    else:
        threads = plural(torch.get_num_threads(), "thread")
        found["device"] = f"{platform.processor() or platform.machine()}, {threads}"
    return found


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors by name, and a state of JSON's types.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_checkpoint(Path(folder) / "last", {"x": torch.ones(2)}, {"step": 3})
    ...     read_checkpoint(Path(folder) / "last")
    ({'x': tensor([1., 1.])}, {'step': 3})
    """
    # memory of their own: safetensors refuses views of one tensor
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(state)
    header = {_HEADER: text, _CHECKSUM: _checksum(whole, text)}
    data = save(whole, metadata=header)  # its own writer hides the system's errors and the umask
    write_atomically(path, lambda part: part.write_bytes(data))


def read_checkpoint(
    path: Path, device: str | torch.device = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the state that `write_checkpoint` wrote; a ValueError for other files."""
    try:
        with safe_open(path, "pt", device=str(device)) as file:  # type: ignore[no-untyped-call]
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ValueError(f"{path}: expected a checkpoint, got no such file") from None
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: expected a checkpoint, got another file: {error}") from None
    if _HEADER not in header:
        raise ValueError(f"{path}: expected a checkpoint of kinspace, got other safetensors")
    # a checkpoint from before there were checksums has none
    if header.get(_CHECKSUM, found := _checksum(tensors, header[_HEADER])) != found:
        raise ValueError(f"{path}: expected an undamaged checkpoint, got another checksum")
    return tensors, json.loads(header[_HEADER])


def _checksum(tensors: Mapping[str, Tensor], state: str) -> str:
    """A digest of all tensors, with their names, types and shapes, and of the state."""
    digest = hashlib.blake2b(state.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].cpu()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True)
class EmbeddingFile:
    """The file for one part of the data, by the "model", the "untrained" backbone or "pixels".

    run: the run folder. own: whether the data is that of the run.

    >>> EmbeddingFile(Path("run"), "test", "untrained").path.as_posix()
    'run/embeddings/test-untrained.npz'
    """

    run: Path
    part: str
    by: str = "model"
    own: bool = True

    @property
    def path(self) -> Path:
        """The table; beside it, ending in .json, what it was made of."""
        name = self.part if self.by == "model" else f"{self.part}-{self.by}"
        folder = self.run / "embeddings"
        return (folder if self.own else folder / "other") / f"{name}.npz"

    def write(self, table: EmbeddingTable, dataset: Dataset) -> None:
        """Keep the table of a data set; not of inputs in which a change would not be seen."""
        if not _has_fingerprint(dataset):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stamp = self.path.with_suffix(".json")
        stamp.unlink(missing_ok=True)  # written last: without it the table does not count
        write_atomically(self.path, table.save)
        write_json(stamp, self._stamp(dataset))

    def vectors(self, dataset: Dataset) -> NDArray[Any] | None:
        """The kept vectors of a data set; None where there are none of it and these weights."""
        try:
            if not _has_fingerprint(dataset):
                return None
            if read_json(self.path.with_suffix(".json")) != self._stamp(dataset):
                return None
            vectors = EmbeddingTable.load(self.path).vectors
        except (OSError, ValueError):
            return None
        return vectors if len(vectors) == len(dataset) else None

    def _stamp(self, dataset: Dataset) -> dict[str, Any]:
        """All that decides what the vectors are."""
        about, weights = read_json(self.run / "run.json"), WEIGHTS[self.by]
        return {
            "weights": None if weights is None else _digest(self.run / weights),
            "model": about["model"],
            "test": about["recipe"].get("test"),
            "transform": about["transform"],
            "pictures": fingerprint(dataset.pictures),
        }


def _has_fingerprint(dataset: Dataset) -> bool:
    pictures = dataset.pictures
    while isinstance(pictures, PictureSubset):
        pictures = pictures.whole
    return not isinstance(pictures, SampleInputs)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
