"""Load any kind of data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from kinspace.data.archives import from_archive, is_archive
from kinspace.data.csv_table import from_table
from kinspace.data.dataset import Dataset
from kinspace.data.folder import from_folder
from kinspace.data.in_memory import BUILT_IN_SETS, Samples, from_samples

__all__ = ["load_dataset"]

EXPECTED = (
    "a folder of class folders or of pictures, a .csv or .tsv table, a zip or tar archive of "
    "either, NAME:FOLDER for a standard set, or a built-in set"
)


def load_dataset(
    source: Dataset | Samples | str | os.PathLike[str],
    *,
    labeled: bool | None = None,
    columns: Mapping[str, str] | None = None,
    allow_outside: bool = False,
) -> Dataset:
    """Load a data set by its name or path, or wrap one that is loaded.

    "digits", "moths"        the built-in sets; "digits:" where a folder has that name too
    "cub200:/data/cub"       a standard set and its folder; names in kinspace.data.standard
    "photos/"                a folder of class folders
    "photos/labels.csv"      a table of paths and labels
    "photos.zip"             an archive of either
    samples                  a map-style data set of (input, label), as of PyTorch
    a `Dataset`              is returned as it is

    labeled: False: without classes, so that folders may be nested in any way; None: a folder whose
    pictures all lie directly in it, and a table of paths alone, have no classes. columns: the
    columns of a table that are path and label, {"path": "file", "label": "breed"}. allow_outside:
    a table may name pictures outside its folder.

    >>> len(load_dataset("digits"))
    1797
    >>> load_dataset("digit")
    Traceback (most recent call last):
    ValueError: cannot open 'digit': no such file or folder; did you mean 'digits'? expected ...
    """
    if isinstance(source, (str, os.PathLike)):
        found = _from_name(os.fspath(source), labeled, columns, allow_outside=allow_outside)
    elif isinstance(source, Dataset):
        found = source
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        found = from_samples(source)
    else:
        found = None
    if found is not None:
        return found.without_labels() if labeled is False and found.labeled else found
    raise ValueError(
        "data: expected a folder or name, a Dataset, or a data set of (input, label), got "
        f"{type(source).__name__}"
    )


def _from_name(
    text: str, labeled: bool | None, columns: Mapping[str, str] | None, *, allow_outside: bool
) -> Dataset:
    path = _expanded(text)
    if columns and not path.is_file():
        raise ValueError(f"columns: expected with a table, got them with {text!r}")
    if text.removesuffix(":") in BUILT_IN_SETS:
        return _built_in(text)
    if path.is_dir():
        return from_folder(path, labeled=labeled)
    if path.exists():
        return _from_file(path, labeled, columns, allow_outside=allow_outside)
    standard = _standard_sets()
    name, colon, folder = text.partition(":")
    if colon and (name in standard or _expanded(folder).is_dir()):
        return _standard(name, folder, standard)
    raise _not_found(text, standard)


def _expanded(text: str) -> Path:
    """The path with ~ as the home of its user; a ValueError for what cannot be a path."""
    try:
        path = Path(text).expanduser()
        path.exists()
    except (RuntimeError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        shown = text if len(text) < 200 else f"{text[:200]}..."
        raise ValueError(f"cannot open {shown!a}: {reason}") from None
    return path


def _built_in(text: str) -> Dataset:
    name = text.removesuffix(":")
    if text == name and Path(name).exists():
        raise ValueError(
            f"cannot open {name!r}: there is a built-in set and a file or folder of that name; "
            f"write './{name}' for the one here, '{name}:' for the built-in one"
        )
    return BUILT_IN_SETS[name]()


def _from_file(
    path: Path, labeled: bool | None, columns: Mapping[str, str] | None, *, allow_outside: bool
) -> Dataset:
    if not path.is_file():  # a device or a pipe never ends
        raise ValueError(f"cannot open {str(path)!r}: got no regular file; expected {EXPECTED}")
    if path.suffix.lower() in (".csv", ".tsv"):
        return from_table(path, labeled=labeled, columns=columns, allow_outside=allow_outside)
    try:
        archive = is_archive(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    if archive:
        return from_archive(path, labeled=labeled, columns=columns)
    raise ValueError(f"cannot open {str(path)!r}: got a file of another kind; expected {EXPECTED}")


def _standard_sets() -> Mapping[str, Callable[[Path], Dataset]]:
    from kinspace.data.standard import STANDARD_SETS

    return STANDARD_SETS


def _standard(name: str, folder: str, sets: Mapping[str, Callable[[Path], Dataset]]) -> Dataset:
    if name in sets:
        return sets[name](_expanded(folder))
    near = get_close_matches(name.lower(), sets, n=1)
    advice = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"unknown standard set {name!r}; {advice}choose from: {', '.join(sorted(sets))}"
    )


def _not_found(text: str, sets: Mapping[str, Callable[[Path], Dataset]]) -> ValueError:
    if text in sets:
        return ValueError(
            f"cannot open {text!r}: it is a standard set, and those are not built in; give "
            f"its folder, {text}:FOLDER"
        )
    path = _expanded(text)
    known = [*BUILT_IN_SETS, *(f"{name}:FOLDER" for name in sets)]
    # the files beside a misspelled path
    try:
        beside = {str(path.parent / entry.name): entry for entry in path.parent.iterdir()}
    except OSError:
        beside = {}
    near = get_close_matches(text, [*known, *beside], n=1) or (
        get_close_matches(text, sets, n=1)  # a standard set without its folder
    )
    advice = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(
        f"cannot open {text!r}: no such file or folder; {advice}expected {EXPECTED} "
        f"({', '.join(BUILT_IN_SETS)})"
    )
