"""kinspace search RUN PICTURE."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, IndexedRun, Json, Strangers
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import LabelColumn, PathColumn, column_names
from kinspace.cli.tables import print_whole

if TYPE_CHECKING:
    from kinspace.inference import Neighbor

__all__ = ["search_command"]


def search_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: IndexedRun,
    picture: Annotated[
        str,
        typer.Argument(
            metavar="PICTURE|DATA", help="Query picture; or a folder, table or archive of them."
        ),
    ],
    k: Annotated[int, typer.Option("-k", min=1, help="Number of neighbors.")] = 10,
    strangers: Strangers = None,
    device: Device = None,
    as_json: Json = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="With DATA, the file to write: .csv or .json."),
    ] = None,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
) -> None:
    """Search a gallery with a picture, or a folder of them, and classify the pictures.

    The class is that whose nearest pictures are the most similar, or unknown if they are not
    similar enough. In a gallery without classes the neighbors alone are printed.
    """
    with user_errors():
        from kinspace.inference import load

        columns = column_names(path_column, label_column)
        if out is not None or columns or not _is_picture(picture):
            search_many(
                run,
                picture,
                out,
                k=k,
                strangers=strangers,
                device=device,
                as_json=as_json,
                columns=columns,
                allow_outside=allow_outside,
            )
            return
        model = load(run, device)
        labeled = model.table.labels is not None
        found = (
            model.classify(picture, k, strangers=strangers) if labeled else model.search(picture, k)
        )
    if as_json and isinstance(found, list):
        typer.echo(json.dumps({"neighbors": [asdict(near) for near in found]}, indent=2))
    elif isinstance(found, list):
        print_neighbors(found)
    elif as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        print_neighbors(found.neighbors)
        Console(markup=False, highlight=False).print(str(found), soft_wrap=True)
    if not as_json:
        print_next(f"kinspace serve {run} --open")


def search_many(  # noqa: PLR0913 - the options of the command
    run: Path,
    data: str,
    out: Path | None,
    *,
    k: int,
    strangers: float | None,
    device: str | None,
    as_json: bool,
    columns: dict[str, str] | None,
    allow_outside: bool,
) -> None:
    """Search with all pictures of a data set; the results go to a file or the terminal."""
    from kinspace._core.atomic_files import write_atomically
    from kinspace.data import load_dataset, unlabeled
    from kinspace.data.pictures import FilePictures
    from kinspace.inference import load
    from kinspace.inference.query_table import QUERY_COLUMNS, result_rows, search_pictures
    from kinspace.search.gallery_tables import write_csv

    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise ValueError(f"--out: expected a file ending in .csv or .json, got {out}")
    with progress("embedding") as display:
        queries = (
            unlabeled(FilePictures([Path(data)]), name=data)
            if _is_picture(data)
            else load_dataset(data, labeled=False, columns=columns, allow_outside=allow_outside)
        )
        model = load(run, device)
        results = list(
            search_pictures(model, queries, k, strangers=strangers, progress=display.count)
        )
    if as_json or (out is not None and out.suffix.lower() == ".json"):
        found = [result.to_dict() for result in results]
        text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        if out is None:
            typer.echo(text, nl=False)
        else:
            write_atomically(out, lambda part: part.write_text(text, encoding="utf-8"))
    else:
        write_csv(result_rows(results), out, QUERY_COLUMNS)
    if out is not None:
        typer.echo(f"{out}: {len(results):,} queries")


def _is_picture(text: str) -> bool:
    """Whether it is a file of its own, or at least no data set."""
    from kinspace.data.archives import is_archive

    path = Path(text)
    if path.suffix.lower() in (".csv", ".tsv") or path.is_dir():
        return False
    if path.is_file():
        return not is_archive(path)
    return bool(path.suffix) and ":" not in text


def print_neighbors(neighbors: Sequence[Neighbor]) -> None:
    """Print the neighbors as a table; columns that say nothing of this gallery are left out."""
    shown = {
        "similarity": [f"{near.similarity:.3f}" for near in neighbors],
        "class": [near.class_name for near in neighbors],
        "picture": [near.id for near in neighbors],
    }
    shown = {name: cells for name, cells in shown.items() if any(cells)}
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("", justify="right")
    for name in shown:
        table.add_column(name, justify="right" if name == "similarity" else "left")
    for place, cells in enumerate(zip(*shown.values(), strict=True), 1):
        table.add_row(str(place), *cells)
    print_whole(table)
