"""Errors for pictures that cannot be read: of one picture, and of all in a data set."""

from __future__ import annotations

__all__ = ["UnreadablePicture", "UnreadablePictures"]

LISTED = 20  # bad pictures named in the error; of the others only the number
ADVICE = "repair or remove them, or go on without them: --skip-bad"


class UnreadablePicture(ValueError):
    """A picture that cannot be read: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadablePicture], tuple[str, str]]:
        return UnreadablePicture, (
            self.name,
            self.reason,
        )  # for the way from a loader's worker process


class UnreadablePictures(ValueError):
    """The pictures of a data set that cannot be read. bad: all of them, by their index.

    `kinspace.data.drop_unreadable(dataset, error)` is the data set without them.

    >>> print(UnreadablePictures({3: UnreadablePicture("note.jpg", "empty file")}, 8))
    1 of 8 pictures cannot be read:
      note.jpg: empty file
    repair or remove them, or go on without them: --skip-bad
    """

    def __init__(self, bad: dict[int, UnreadablePicture], total: int) -> None:
        lines = [f"{len(bad)} of {total} pictures cannot be read:"]
        lines += [f"  {error}" for error in list(bad.values())[:LISTED]]
        if len(bad) > LISTED:
            lines.append(f"  and {len(bad) - LISTED} more")
        super().__init__("\n".join([*lines, ADVICE]))
        self.bad = bad
        self.total = total

    def __reduce__(
        self,
    ) -> tuple[type[UnreadablePictures], tuple[dict[int, UnreadablePicture], int]]:
        return UnreadablePictures, (self.bad, self.total)
