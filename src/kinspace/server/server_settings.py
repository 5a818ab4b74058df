"""Limits and access rules of a server, and the address it listens at."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace

from kinspace._core import checks

__all__ = ["LOCAL_HOSTS", "ServerSettings", "settings_for_address"]

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServerSettings:
    """Limits and access rules.

    token: required from every client, if given. hosts: the host names a request may use; None: any.
    The default is the names of this machine, so that no foreign page can reach the server under a
    name of its own (DNS rebinding). max_upload_bytes, max_pixels: of one picture. read_timeout:
    seconds without data from a client before its upload is refused; header_timeout, body_timeout,
    request_timeout: seconds for the headers, for the whole body, and for a request with its answer;
    decode_timeout, decode_memory: seconds of a core and bytes to decode a picture. decoders:
    processes for pictures of usual size; large ones go to one more. connections,
    connections_per_address: open at one time; behind a proxy all are of one address. queue_size:
    pictures processed at one time, of one address at most half of what the others leave; the next
    one is refused with 503. batch_size: pictures through the model at a time. max_neighbors: that a
    request may ask for. editable: whether clients may add pictures to the gallery and change their
    classes.

    >>> ServerSettings(queue_size=0)
    Traceback (most recent call last):
    ValueError: queue_size: expected at least 1, got 0
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = LOCAL_HOSTS
    max_upload_bytes: int = 10 * 2**20
    max_pixels: int = 40_000_000
    read_timeout: float = 30.0
    header_timeout: float = 10.0
    body_timeout: float = 60.0
    request_timeout: float = 180.0
    decode_timeout: float = 10.0
    decode_memory: int = 2**30
    decoders: int = 2
    connections: int = 256
    connections_per_address: int = 64
    queue_size: int = 64
    batch_size: int = 16
    max_neighbors: int = 100
    editable: bool = False

    def __post_init__(self) -> None:
        for name in (
            "max_upload_bytes",
            "max_pixels",
            "decode_memory",
            "decoders",
            "connections",
            "connections_per_address",
            "queue_size",
            "batch_size",
            "max_neighbors",
        ):
            checks.integer(name, getattr(self, name), at_least=1)
        for name in vars(self):
            if name.endswith("_timeout"):
                checks.positive(name, getattr(self, name))
        if self.token is not None and (not self.token.isascii() or len(self.token) < 8):
            raise ValueError("token: expected at least 8 ASCII characters, got fewer or others")


def settings_for_address(
    settings: ServerSettings, address: str, *, unprotected: bool = False
) -> ServerSettings:
    """The settings for an address to listen at; any host name is allowed on a public one.

    An address that other machines can reach requires a token, unless `unprotected`.

    >>> settings_for_address(ServerSettings(), "127.0.0.1").hosts
    ('localhost', '127.0.0.1', '[::1]')
    >>> settings_for_address(ServerSettings(), "0.0.0.0", unprotected=True).hosts is None
    True
    """
    if _is_local(address):
        return settings
    if settings.token is None and not unprotected:
        raise ValueError(
            f"host: {address} can be reached from other machines; give a token (the environment "
            "variable KINSPACE_TOKEN), or allow everyone with --unprotected"
        )
    return replace(settings, hosts=None) if settings.hosts == LOCAL_HOSTS else settings


def _is_local(address: str) -> bool:
    """Whether only this machine can reach an address.

    >>> [_is_local(name) for name in ("127.0.0.1", "localhost", "0.0.0.0", "box.lan")]
    [True, True, False, False]
    """
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
