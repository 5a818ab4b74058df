"""Files as accidents and attackers leave them, made of whole ones by a seed.

Each is opened as a user would: it is read, or refused by a ValueError or OSError in a line. Any
other error, and more than LIMIT seconds, count as failures.

    python tests/support/malformed_files.py --count 300     # a row for each kind
    python tests/support/malformed_files.py --count 1000 --write docs/reliability.md
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import signal
import sys
import tarfile
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, features
from safetensors.numpy import save_file

import kinspace
from bundles import digits, run_with_gallery
from kinspace.data import from_archive, load_dataset
from kinspace.data.pictures import decode
from kinspace.embeddings import EmbeddingTable
from kinspace.recipes import describe, read_recipe, recipe_names
from kinspace.search.run_gallery import open_gallery, rebuild_index
from kinspace.training import resume_training
from odd_pictures import encoded, scene

__all__ = ["KINDS", "Found", "tried"]

LIMIT = 30  # seconds for one file
LONGEST = 2500  # letters of an error, with the list of what is expected


@dataclass
class Found:
    """How many files of a kind were tried, and what became of them."""

    tried: int = 0
    read: int = 0
    refused: int = 0
    failed: list[str] = field(default_factory=list)


class TooLongError(BaseException):
    """A file that takes longer than LIMIT."""


def tried(kind: str, seeds: range, place: Path) -> Found:
    """Make and open a file of this kind for each seed."""
    found = Found()
    attempt = KINDS[kind](place)
    for seed in seeds:
        found.tried += 1
        try:
            with limited(), warnings.catch_warnings():
                warnings.simplefilter("error")
                attempt(random.Random(f"{kind} {seed}"))
            found.read += 1
        except (ValueError, OSError) as error:
            found.refused += 1
            if len(str(error)) > LONGEST or "Traceback" in str(error):
                found.failed.append(f"{kind} {seed}: a long error: {str(error)[:300]}")
        except (Exception, TooLongError) as error:  # noqa: BLE001 - this is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.failed.append(f"{kind} {seed}: {error!r:.200} in {where.filename}:{where.lineno}")
    return found


@contextmanager
def limited() -> Iterator[None]:
    """At most LIMIT seconds."""

    def end(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A file that was cut, changed, or written over in part."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        at = rng.randrange(len(made)) if made else 0
        if rng.random() < 0.3:  # in the head
            at = min(at, rng.randrange(64))
        until = min(len(made), at + rng.choice((1, 2, 4, 8, 200)))
        change = rng.randrange(6)
        if change == 0 and made:
            made[at] ^= 1 << rng.randrange(8)
        elif change == 1:
            made[at:until] = rng.choice((b"\0", b"\xff", b"\x7f", b" ")) * (until - at)
        elif change == 2:
            del made[at:until]
        elif change == 3:
            made[at:at] = made[at:until] * rng.choice((1, 3))
        elif change == 4:
            made[at:until] = rng.randbytes(until - at)
        elif rng.random() < 0.5:
            del made[at:]
    return bytes(made)


ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**9, 2**70, 1e308, float("nan"), "", "x", "nra", "../..", "x" * 3000,
    [], {}, [1], ["x"], {"name": "x"}, [[[]]],
)  # fmt: skip


def changed_value(value: Any, rng: random.Random) -> Any:
    """A value of JSON with one of its parts, or all of it, another one, missing, or twice."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name, made = rng.choice(sorted(value)), dict(value)
        way = rng.random()
        if way < 0.12:
            del made[name]
        elif way < 0.2:
            made[rng.choice(("x", name.upper(), ""))] = made.pop(name)
        else:
            made[name] = changed_value(value[name], rng)
        return made
    if isinstance(value, list) and value and rng.random() < 0.8:
        at, made_list = rng.randrange(len(value)), list(value)
        made_list[at : at + 1] = rng.choice(
            ([], [value[at]] * 2, [changed_value(value[at], rng)], [changed_value(value[at], rng)])
        )
        return made_list
    return rng.choice(ODD_VALUES)


def _pictures(_: Path) -> Callable[[random.Random], None]:
    names = ["jpeg", "png", "gif", "bmp", "tiff", "ppm", "tga", "pcx", "ico", "sgi", "jpeg2000"]
    names += [name for name in ("webp", "avif") if features.check(name)]
    whole = [encoded(scene(n, 40), name) for n, name in enumerate(names)]
    deep = Image.fromarray(np.arange(900, dtype=np.uint16).reshape(30, 30))
    whole += [encoded(deep, "png"), encoded(deep, "tiff")]
    whole += [encoded(scene(1).convert(mode), "tiff") for mode in ("CMYK", "LA", "P", "1", "F")]
    frames = [scene(seed) for seed in (1, 2, 3)]
    whole += [
        encoded(frames[0], name, save_all=True, append_images=frames[1:])
        for name in ("gif", "tiff", "png")
    ]

    def attempt(rng: random.Random) -> None:
        assert decode(io.BytesIO(damaged(rng.choice(whole), rng)), "picture").mode == "RGB"

    return attempt


TABLES = (
    "path,label,split,color\n0.png,io,train,red\n1.png,luna,test,blue\n2.png,io,test,red\n",
    "path\tlabel\trole\tsize\n0.png\tio\tquery\t0.5\n1.png\tio\tgallery\t1\n2.png\tio\tquery\t0\n",
    "path\n0.png\n1.png\n",
    '"path";"label"\r\n"0.png";"a;b"\r\n"1.png";"a ""b"""\r\n',
)


def _tables(place: Path) -> Callable[[random.Random], None]:
    for number in range(3):
        scene(number).save(place / f"{number}.png")

    def attempt(rng: random.Random) -> None:
        text = rng.choice(TABLES)
        if rng.random() < 0.5:
            cells = ("../0.png", "/dev/zero", "~", "nan", "1e999", "\0", "\u202e", "train", "," * 9)
            words = text.replace("\t", ",").split(",")
            words[rng.randrange(len(words))] = rng.choice(cells)
            text = ",".join(words)
        data = text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16", "latin-1")), "replace")
        file = place / rng.choice(("labels.csv", "labels.tsv"))
        file.write_bytes(damaged(data, rng) if rng.random() < 0.7 else data)
        _read_all(load_dataset(file))

    return attempt


def _archives(place: Path) -> Callable[[random.Random], None]:
    members = {f"kind {n % 2}/{n}.png": encoded(scene(n, 20), "png") for n in range(4)}
    listed = {
        "labels.csv": TABLES[0].encode(),
        **{f"{n}.png": members["kind 0/0.png"] for n in range(3)},
    }
    whole = []
    for content in (members, listed):
        for mode in ("w", "w:gz", "w:bz2", "w:xz"):
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode=mode) as packed:  # type: ignore[call-overload]
                for name, value in content.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(value)
                    packed.addfile(info, io.BytesIO(value))
            whole.append(("set.tar", data.getvalue()))
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
            data = io.BytesIO()
            with zipfile.ZipFile(data, "w", method) as zipped:
                for name, value in content.items():
                    zipped.writestr(name, value)
            whole.append(("set.zip", data.getvalue()))

    def attempt(rng: random.Random) -> None:
        name, data = rng.choice(whole)
        file = place / name
        file.write_bytes(damaged(data, rng))
        _read_all(from_archive(file))

    return attempt


def _read_all(dataset: Any) -> None:
    for index in range(len(dataset)):
        dataset.pictures.read(index)


def _recipes(place: Path) -> Callable[[random.Random], None]:
    whole = [describe(read_recipe(name)) for name in recipe_names()[::9]]
    values = ("-1", "0", "1e400", "nan", '"x"', "[]", "{}", "true", "10000000000000", "''")

    def attempt(rng: random.Random) -> None:
        text = rng.choice(whole)
        if rng.random() < 0.6:
            lines = text.splitlines()
            at = rng.choice([n for n, line in enumerate(lines) if " = " in line])
            lines[at] = f"{lines[at].partition(' = ')[0]} = {rng.choice(values)}"
            text = "\n".join(lines)
        file = place / "own.toml"
        file.write_bytes(damaged(text.encode(), rng) if rng.random() < 0.5 else text.encode())
        read_recipe(str(file))

    return attempt


def _run_files(name: str, use: Callable[[Path], object]) -> Callable[[Path], Any]:
    """A file of a run that has a gallery: its JSON with other values, or its bytes damaged."""

    def kind(place: Path) -> Callable[[random.Random], None]:
        whole = run_with_gallery(place)
        if name == "search.faiss":
            rebuild_index(whole, backend="faiss", device="cpu")
        elif name == "journal":
            open_gallery(whole).relabel([3, 5], "luna")
            open_gallery(whole).remove([2])
        [file] = [path for path in whole.iterdir() if path.match(PATTERNS.get(name, name))]
        data, copy = file.read_bytes(), place / "copy"

        def attempt(rng: random.Random) -> None:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            made = damaged(data, rng)
            if name.endswith(".json") and rng.random() < 0.7:
                made = json.dumps(changed_value(json.loads(data), rng)).encode()
            (copy / file.name).write_bytes(made)
            use(copy)

        return attempt

    return kind


def _searched(folder: Path) -> None:
    model = kinspace.load(folder, "cpu")
    assert model.classify(digits().pictures.read(3)).neighbors


def _looked_at(folder: Path) -> None:
    run = kinspace.Run(folder)
    repr((run.results, run.verdict, run.metrics, run.splits()))
    run.model("cpu")


def _table_file(kind: str) -> Callable[[Path], Any]:
    """A table of vectors in one of its files."""

    def made(place: Path) -> Callable[[random.Random], None]:
        vectors = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
        table = EmbeddingTable(vectors, np.arange(12) % 3, class_names=("io", "luna", "atlas"))
        file = place / f"table.{kind}"
        if kind == "safetensors":  # is read and not written
            save_file({"vectors": vectors, "labels": np.arange(12) % 3}, file)
        else:
            table.save(file)
        data = file.read_bytes()

        def attempt(rng: random.Random) -> None:
            file.write_bytes(damaged(data, rng))
            EmbeddingTable.load(file)

        return attempt

    return made


PATTERNS = {"search.faiss": "search-faiss*", "journal": "gallery-*.journal"}
KINDS: dict[str, Callable[[Path], Callable[[random.Random], None]]] = {
    "pictures": _pictures,
    "tables": _tables,
    "archives": _archives,
    "recipes": _recipes,
    "run.json": _run_files("run.json", _looked_at),
    "results.json": _run_files("results.json", _looked_at),
    "metrics.jsonl": _run_files("metrics.jsonl", _looked_at),
    "model.safetensors": _run_files("model.safetensors", _searched),
    "checkpoints": _run_files(
        "last.safetensors", lambda folder: resume_training(folder, device="cpu", quiet=True)
    ),
    "gallery.npz": _run_files("gallery.npz", _searched),
    "journal": _run_files("journal", _searched),
    "search.faiss": _run_files("search.faiss", _searched),
    "thresholds.json": _run_files("thresholds.json", _searched),
    "vectors.npz": _table_file("npz"),
    "vectors.safetensors": _table_file("safetensors"),
}


def _row(kind: str, found: Found) -> str:
    return (
        f"| {kind} | {found.tried:,} | {found.read:,} | {found.refused:,} | {len(found.failed)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--write", type=Path, help="put the table in this page")
    options = parser.parse_args()
    rows = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as place:
            found = tried(kind, range(options.count), Path(place))
        rows.append(_row(kind, found))
        print("\n".join([rows[-1], *found.failed]), flush=True)  # noqa: T201
    if options.write:
        before, _, rest = options.write.read_text(encoding="utf-8").partition(BEGIN)
        head = ["| file | tried | read | refused in a line | failed |", "| --- |" + " ---: |" * 4]
        table = "\n".join([BEGIN, *head, *rows, END])
        options.write.write_text(before + table + rest.partition(END)[2], encoding="utf-8")


BEGIN, END = "<!-- files -->", "<!-- end of files -->"

if __name__ == "__main__":
    sys.exit(main())
