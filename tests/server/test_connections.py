"""Clients that are slow, idle or many: the server stays open to the others."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import uvicorn

import kinspace
from kinspace.inference import EmbeddingModel
from kinspace.server.app import make_app
from kinspace.server.connections import limited_protocol
from kinspace.server.launcher import listen_at
from kinspace.server.server_settings import ServerSettings
from web_servers import get, picture, running, small_run, upload

SETTINGS = ServerSettings(
    header_timeout=0.6,
    body_timeout=0.8,
    request_timeout=5,
    connections=12,
    connections_per_address=9,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingModel:
    return kinspace.load(small_run(tmp_path_factory.mktemp("run")), "cpu")


@pytest.fixture(scope="module")
def base(model: EmbeddingModel) -> Iterator[str]:
    with running(model, SETTINGS, http=limited_protocol(SETTINGS)) as address:
        yield address


def connected(base: str) -> socket.socket:
    host, _, port = base.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(client: socket.socket) -> tuple[int, dict[str, str]]:
    """The status and the JSON that a client is sent before the server closes."""
    data = b""
    while part := client.recv(4096):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)


def wait_until_free(base: str) -> None:
    """Until the connections of the test before are closed."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with connected(base) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            if b"200 OK" in client.recv(4096):
                return
        time.sleep(0.05)
    raise AssertionError("the server is held")


def test_idle_connections_do_not_lock_the_others_out(base: str) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(base)) for _ in range(9)]
        one_more = stack.enter_context(connected(base))
        code, said = answer(one_more)
        assert (code, said) == (
            503,
            {"error": "busy: too many connections of this address; try again"},
        )
        assert answer(idle[0])[0] == 408
        wait_until_free(base)
        assert upload(base, picture()).status_code == 200


def test_headers_that_come_letter_by_letter_end_in_time(base: str) -> None:
    wait_until_free(base)
    with connected(base) as client:
        start = time.monotonic()
        with suppress(OSError):  # the server has closed the connection
            for letter in b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 500:
                client.sendall(bytes([letter]))
                time.sleep(0.05)
        assert time.monotonic() - start < 5


def test_a_second_request_of_a_connection_has_to_end_too(base: str) -> None:
    wait_until_free(base)
    with connected(base) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in client.recv(4096)
        client.sendall(b"GET /healthz HT")
        code, _ = answer(client)
        assert code == 408


def test_a_body_that_comes_byte_by_byte_ends_in_time(base: str) -> None:
    wait_until_free(base)
    head = (
        b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
    )
    with connected(base) as client:
        client.sendall(head)
        start = time.monotonic()
        client.settimeout(0.1)
        data = b""
        while b"\r\n\r\n" not in data and time.monotonic() - start < 10:
            client.sendall(b"a")
            try:
                data += client.recv(4096)
            except TimeoutError:
                continue
        assert b" 408 " in data.split(b"\r\n")[0]
        assert time.monotonic() - start < 5


def test_what_is_no_http_is_an_error_of_the_same_form(base: str) -> None:
    wait_until_free(base)
    for data in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"SSH-2.0-x\r\n\r\n"):
        with connected(base) as client:
            client.sendall(data)
            code, said = answer(client)
        assert code == 400
        assert said["error"].startswith("request: expected HTTP")


def test_requests_go_on_as_before(base: str) -> None:
    wait_until_free(base)
    for _ in range(3):
        assert upload(base, picture()).json()["neighbors"]
    assert get(f"{base}/healthz").json() == {"status": "ok"}


def test_a_server_with_slow_clients_stops_in_time(model: EmbeddingModel) -> None:
    slow = ServerSettings(header_timeout=60, body_timeout=60)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            make_app(model, slow),
            log_level="critical",
            http=limited_protocol(slow),
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        worker = threading.Thread(target=server.run, args=([listener],), daemon=True)
        worker.start()
        while not server.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with connected(address) as idle, connected(address) as uploading:
            uploading.sendall(
                b"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            )
            idle.sendall(b"GET /")
            time.sleep(0.2)
            start = time.monotonic()
            server.should_exit = True
            worker.join(15)
            assert not worker.is_alive()
            assert time.monotonic() - start < 10


def test_answers_are_sent_without_delay() -> None:
    """Otherwise the second part of an answer waits 40 ms for the client's acknowledgment."""
    delayed: list[int] = []

    async def serve() -> None:
        def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = writer.get_extra_info("socket")
            delayed.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listen_at("127.0.0.1", 0)
        async with await asyncio.start_server(accepted, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    asyncio.run(serve())
    [without] = delayed
    assert without


def test_the_limits_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="connections_per_address: expected at least 1, got 0"):
        ServerSettings(connections_per_address=0)
    with pytest.raises(ValueError, match="header_timeout: "):
        ServerSettings(header_timeout=0)
