"""kinspace add RUN DATA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Data, Device, ImageBatch, IndexedRun, LoaderWorkers
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import (
    LabelColumn,
    PathColumn,
    SkipBadPictures,
    Unlabeled,
    column_names,
    load_pictures,
)

if TYPE_CHECKING:
    from kinspace.inference import Added

__all__ = ["add_command"]


def add_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: IndexedRun,
    data: Data,
    label: Annotated[
        str | None, typer.Option("--label", help="Class of all pictures. Default: their own.")
    ] = None,
    *,
    unlabeled: Unlabeled = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    skip_bad: SkipBadPictures = False,
    batch: ImageBatch = 64,
    workers: LoaderWorkers = 0,
    device: Device = None,
) -> None:
    """Add pictures to a gallery, of new classes too, without training.

    Pictures that are in the gallery are left out: after an interruption the same command goes on.
    """
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.inference import add_pictures, load

        with progress("embedding") as display:
            pictures = load_pictures(
                data,
                display,
                unlabeled=unlabeled or label is not None,
                skip_bad=skip_bad,
                columns=column_names(path_column, label_column),
                allow_outside=allow_outside,
            )
            model = load(run, device)
            done = add_pictures(
                model,
                pictures,
                label=label,
                batch_size=batch,
                workers=workers,
                progress=display.count,
            )
        there = f", {done.present:,} were there already" if done.present else ""
        total = plural(len(model.table), "picture")
        typer.echo(f"{run}: added {plural(done.count, 'picture')}{there}; it has {total} now")
        for each in done.classes:
            typer.echo(describe(each))
        print_next(f"kinspace serve {run} --open")


def describe(added: Added) -> str:
    """What was added to one class, in a line.

    >>> from kinspace.inference import Added
    >>> describe(Added("io", 3, True, "luna", 0.91, True))
    '  io: 3 pictures, a new class; easily confused with luna (cosine 0.910)'
    """
    from kinspace._core.checks import plural

    words = f"  {added.class_name}: {plural(added.count, 'picture')}"
    words += ", a new class" if added.new else ""
    if added.confusable:
        words += f"; easily confused with {added.nearest_class} (cosine {added.similarity:.3f})"
    return words
