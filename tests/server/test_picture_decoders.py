"""Who sends many large pictures waits for them; the others do not."""

import io
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from PIL import Image

import kinspace
from kinspace.inference import EmbeddingModel
from kinspace.server import picture_decoders
from kinspace.server.picture_decoders import TurnQueue
from kinspace.server.server_settings import ServerSettings
from web_servers import picture, running, small_run, upload

PATIENT = ServerSettings(decode_timeout=120)  # the machine may be busy
ATTACKER = "127.0.0.2"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingModel:
    return kinspace.load(small_run(tmp_path_factory.mktemp("run")), "cpu")


def png(pixels: tuple[int, int], mode: str = "L") -> bytes:
    data = io.BytesIO()
    Image.new(mode, pixels).save(data, "png")
    return data.getvalue()


class Attack:
    """Clients of another address, each of which sends one picture after the other."""

    def __init__(self, base: str, data: bytes, clients: int) -> None:
        self.codes: list[int] = []
        self.times: list[float] = []
        self._over = threading.Event()
        self._base, self._data = base, data
        self._threads = ThreadPoolExecutor(clients)
        self._done = [self._threads.submit(self._work) for _ in range(clients)]

    def _work(self) -> None:
        transport = httpx.HTTPTransport(local_address=ATTACKER)
        with httpx.Client(transport=transport, timeout=120) as client:
            while not self._over.is_set():
                answer = client.post(f"{self._base}/api/search", files={"picture": self._data})
                self.codes.append(answer.status_code)
                self.times.append(time.monotonic())

    def wait_for_first(self) -> None:
        end = time.monotonic() + 60
        while not self.codes:
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self) -> None:
        self._over.set()
        self._threads.shutdown()
        for each in self._done:
            each.result()


def test_addresses_take_turns() -> None:
    queue = TurnQueue[int]()
    for number in range(4):
        queue.put("a", number)
    queue.put("b", 10)
    queue.put("c", 20)
    queue.put("b", 11)
    assert [queue.get() for _ in range(7)] == [0, 10, 20, 1, 11, 2, 3]
    waiting = threading.Thread(target=queue.get)
    waiting.start()
    assert queue.close() == []
    waiting.join(30)
    assert not waiting.is_alive()


def test_large_pictures_of_one_client_do_not_hold_up_those_of_another(
    model: EmbeddingModel,
) -> None:
    """While one picture of 30 million pixels is decoded, the other client has many answers."""
    with running(model, PATIENT) as base:
        attack = Attack(base, png((6000, 5000)), clients=8)
        try:
            attack.wait_for_first()
            answers: list[float] = []
            while len(attack.codes) < 9:  # of each client one, that waited for seven others
                assert upload(base, picture()).status_code == 200
                answers.append(time.monotonic())
        finally:
            attack.end()
        assert set(attack.codes) == {200}
        while_first = [t for t in answers if attack.times[0] < t < attack.times[8]]
        assert len(while_first) > 3 * 8  # more than three while each of the eight was decoded


def test_a_large_picture_waits_for_one_of_another_client(model: EmbeddingModel) -> None:
    with running(model, PATIENT) as base:
        attack = Attack(base, png((6000, 5000)), clients=8)
        try:
            attack.wait_for_first()
            before = len(attack.codes)
            assert upload(base, png((2500, 2000))).status_code == 200
            # that which was under way, and what was answered while this answer was on its way
            assert len(attack.codes) - before <= 3
        finally:
            attack.end()


@pytest.mark.slow
def test_pictures_that_take_long_are_the_business_of_their_sender(
    model: EmbeddingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few pixels that take long: a JPEG of many scans. They are tried once as usual ones."""
    monkeypatch.setattr(picture_decoders, "USUAL_SECONDS", 0.1)
    with running(model, ServerSettings(decoders=1, decode_timeout=120)) as base:
        attack = Attack(base, many_scans(), clients=2)
        try:
            attack.wait_for_first()
            before = len(attack.codes)
            answers = 0
            while len(attack.codes) == before:
                assert upload(base, picture()).status_code == 200
                answers += 1
        finally:
            attack.end()
        assert set(attack.codes) == {200}
        assert answers > 6


def many_scans() -> bytes:
    """A progressive JPEG of 4 million pixels whose last scan is there 600 times: 32 KB."""
    whole = io.BytesIO()
    Image.new("L", (2000, 1990), 200).save(whole, "JPEG", progressive=True, quality=30)
    data = whole.getvalue()
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + 600 * last + data[-2:]


def test_the_slots_of_an_attacker_leave_some_for_others(model: EmbeddingModel) -> None:
    """More clients than slots: theirs are refused, with the promised error, and nobody else's."""
    with running(model, ServerSettings(queue_size=8, decode_timeout=120)) as base:
        attack = Attack(base, png((6000, 5000)), clients=12)
        try:
            attack.wait_for_first()
            for _ in range(10):
                assert upload(base, picture()).status_code == 200
        finally:
            attack.end()
        assert set(attack.codes) == {200, 503}


def test_stops_at_once_while_pictures_wait(model: EmbeddingModel, tmp_path: Path) -> None:
    data = png((6000, 5000))
    start = 0.0
    with running(model, PATIENT) as base, ThreadPoolExecutor(6) as clients:
        where = urlsplit(base)
        assert upload(base, picture()).status_code == 200
        lines = [socket.create_connection((where.hostname, where.port), 60) for _ in range(6)]
        part = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
        body = part + data + b"\r\n--b--\r\n"
        head = (
            f"POST /api/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        )
        list(clients.map(lambda line: line.sendall(head.encode() + body), lines))
        time.sleep(0.3)
        for line in lines:
            line.close()
        start = time.monotonic()
    assert time.monotonic() - start < 20
