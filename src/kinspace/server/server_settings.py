"""What a server of a gallery allows."""

from __future__ import annotations

from dataclasses import dataclass

from kinspace._core import checks

__all__ = ["LOCAL", "Settings"]

LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Limits and rights.

    token: asked of everyone, if given. hosts: the names the server may be called by; None: any.
    By default those of this machine alone, so that no foreign page can reach it under a name of
    its own (DNS rebinding). upload_bytes, pixels: of one picture. seconds: a client may be silent
    for so long while it sends. queue: pictures asked about at one time, the next is answered 503.
    batch: pictures through the model at a time. most: neighbors that may be asked for.

    >>> Settings(queue=0)
    Traceback (most recent call last):
    ValueError: queue: expected at least 1, got 0
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = LOCAL
    upload_bytes: int = 10 * 2**20
    pixels: int = 40_000_000
    seconds: float = 30.0
    queue: int = 32
    batch: int = 16
    most: int = 100

    def __post_init__(self) -> None:
        for name in ("upload_bytes", "pixels", "queue", "batch", "most"):
            checks.integer(name, getattr(self, name), at_least=1)
        checks.positive("seconds", self.seconds)
        if self.token is not None and (not self.token.isascii() or len(self.token) < 8):
            raise ValueError("token: expected at least 8 ASCII characters, got fewer or others")
