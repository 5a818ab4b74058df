"""Limits of connections: how many there are, in all and of one address, and how long they take.

uvicorn itself waits for the first request of a connection as long as the client likes, and counts
such connections against its limit: a few hundred idle ones lock everybody out. Here a connection
that has not sent the headers of a request in time is closed, as is one whose request, with its body
and its answer, takes longer than a request may. What is refused has the form of all other errors.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections import Counter
from contextlib import suppress
from typing import Any

from kinspace.server.server_settings import ServerSettings

__all__ = ["client_address", "limited_protocol"]

PHRASES = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


def client_address(host: str) -> str:
    """The address that limits count by: of IPv6 the network, since one client has all of it.

    >>> client_address("192.0.2.7"), client_address("::ffff:192.0.2.7")
    ('192.0.2.7', '192.0.2.7')
    >>> client_address("2001:db8::1:2")
    '2001:db8::/64'
    """
    with suppress(ValueError):  # of a socket file
        address = ipaddress.ip_address(host)
        if isinstance(address, ipaddress.IPv6Address):
            if address.ipv4_mapped is not None:
                return str(address.ipv4_mapped)
            return str(ipaddress.ip_network((int(address), 64), strict=False))
    return host


def limited_protocol(settings: ServerSettings) -> type[asyncio.Protocol]:
    """uvicorn's protocol with these limits, for `uvicorn.run(app, http=...)`.

    >>> import uvicorn
    >>> settings = ServerSettings(connections=64)
    >>> uvicorn.run(app, http=limited_protocol(settings))  # doctest: +SKIP
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    base: Any = AutoHTTPProtocol
    of_address: Counter[str] = Counter()

    class LimitedProtocol(base):  # type: ignore[misc]
        """A connection of uvicorn's, with its timer."""

        address = ""
        timer: asyncio.TimerHandle | None = None
        busy = False  # whether the timer is that of a request

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            peer = transport.get_extra_info("peername")
            self.address = client_address(str(peer[0])) if peer else "local"
            of_address[self.address] += 1
            if of_address[self.address] > settings.connections_per_address:
                self.refuse(503, "busy: too many connections of this address; try again")
            elif of_address.total() > settings.connections:
                self.refuse(503, "busy: too many connections; try again")
            else:
                self.start_timer(settings.header_timeout)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            in_request = self.cycle is not None and not self.cycle.response_complete
            if in_request and not self.busy:
                self.busy = True
                self.start_timer(settings.request_timeout)
            elif not in_request and self.timer is None:
                self.start_timer(settings.header_timeout)

        def on_response_complete(self) -> None:
            self.stop_timer()  # between two requests uvicorn's own timer closes the connection
            self.busy = False
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_timer()
            of_address[self.address] -= 1
            if of_address[self.address] <= 0:
                del of_address[self.address]
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self.refuse(400, "request: expected HTTP, got what cannot be read as such")

        def start_timer(self, seconds: float) -> None:
            self.stop_timer()
            self.timer = asyncio.get_running_loop().call_later(seconds, self.time_is_up)

        def stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def time_is_up(self) -> None:
            self.timer = None
            if self.busy:  # a part of an answer may be on its way
                self.transport.abort()
            else:
                self.refuse(408, "expected the complete request, got a part of it")

        def refuse(self, code: int, text: str) -> None:
            self.stop_timer()
            body = json.dumps({"error": text}).encode()
            retry = "Retry-After: 1\r\n" if code == 503 else ""
            head = (
                f"HTTP/1.1 {code} {PHRASES[code]}\r\nContent-Type: application/json\r\n{retry}"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return LimitedProtocol
