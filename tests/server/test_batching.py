"""Many at one time get what one alone gets; too many are told at once."""

import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from torch import Tensor

import kinspace
from kinspace.inference import Model
from kinspace.server.batch_queue import Batcher, Busy, Vector
from kinspace.server.server_settings import Settings
from server.servers import get, picture, running, upload


class Gate:
    """Holds the real model back until opened, and notes how large its batches were."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.sizes = threading.Event(), []
        real = model.embed_inputs

        def held(inputs: Tensor) -> Tensor:
            assert self.opened.wait(30)
            self.sizes.append(len(inputs))
            return real(inputs)

        monkeypatch.setattr(model, "embed_inputs", held)


def queued(server: str) -> int:
    text = get(f"{server}/metrics").text
    return int(
        next(x for x in text.splitlines() if x.startswith("kinspace_queue_pictures")).split()[1]
    )


def until(server: str, number: int) -> None:
    for _ in range(1000):
        if queued(server) == number:
            return
        time.sleep(0.01)
    raise AssertionError(f"never {number} in the queue")


def test_eight_at_one_time_get_the_vectors_of_single_ones(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a request takes its place in the queue before its picture is decoded: only what was asked of
    # the model can be in a batch
    asking, ask = threading.Semaphore(0), Batcher.ask

    def counted(self: Batcher, inputs: Tensor) -> Future[Vector]:
        answer = ask(self, inputs)
        asking.release()
        return answer

    model = kinspace.load(run, "cpu")
    pictures = [picture(row) for row in range(8)]
    with running(model) as server, ThreadPoolExecutor(8) as clients:
        alone = [upload(server, data, "/api/encode").json()["vector"] for data in pictures]
        gate = Gate(model, monkeypatch)
        monkeypatch.setattr(Batcher, "ask", counted)
        asked = [clients.submit(upload, server, data, "/api/encode") for data in pictures]
        assert all(asking.acquire(timeout=30) for _ in pictures)
        gate.opened.set()
        together = [answer.result().json()["vector"] for answer in asked]
    assert sum(gate.sizes) == 8
    assert len(gate.sizes) <= 2  # what came before the gate was reached, and all the rest
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-5, rtol=0)


def test_a_full_queue_answers_at_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = kinspace.load(run, "cpu")
    gate = Gate(model, monkeypatch)
    with running(model, Settings(queue=2)) as server, ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(upload, server, picture(row)) for row in range(2)]
        until(server, 2)
        refused = upload(server, picture(3))  # the model is still held: nobody has waited for it
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "busy" in refused.json()["error"]
        assert get(f"{server}/healthz").status_code == 200
        gate.opened.set()
        assert [answer.result().status_code for answer in asked] == [200, 200]
        until(server, 0)
        assert upload(server, picture(3)).status_code == 200


def test_a_full_queue_is_told_before_the_picture_is_sent(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kinspace.load(run, "cpu")
    gate = Gate(model, monkeypatch)
    with running(model, Settings(queue=1)) as server, ThreadPoolExecutor(1) as clients:
        asked = clients.submit(upload, server, picture(0))
        until(server, 1)
        where = urlsplit(server)
        with socket.create_connection((where.hostname, where.port), 60) as line:
            head = (
                f"POST /api/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 5000\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
            )
            line.sendall(head.encode())  # and nothing of the body
            assert b" 503 " in line.recv(65536).split(b"\r\n")[0]
        gate.opened.set()
        assert asked.result().status_code == 200
        counted = 'requests_total{method="POST",route="/api/search",code="503"} 1'
        assert counted in get(f"{server}/metrics").text


def test_one_bad_input_does_not_spoil_the_batch() -> None:
    entered, opened = threading.Event(), threading.Event()

    def embed(inputs: Tensor) -> Tensor:
        entered.set()
        assert opened.wait(30)
        if bool((inputs < 0).any()):
            raise RuntimeError("negative")
        return inputs

    batcher = Batcher(embed, size=8, places=8)
    first = batcher.ask(torch.zeros(1))
    assert entered.wait(30)
    rest = [batcher.ask(torch.tensor([x])) for x in (1.0, -1.0, 2.0, 3.0)]
    assert rest[3].cancel()  # one who has gone
    opened.set()
    assert first.result(30).tolist() == [0.0]
    assert [rest[0].result(30).tolist(), rest[2].result(30).tolist()] == [[1.0], [2.0]]
    with pytest.raises(RuntimeError, match="negative"):
        rest[1].result(30)
    assert batcher.ask(torch.ones(1)).result(30).tolist() == [1.0]
    assert batcher.pictures == 4
    batcher.close()


def test_a_place_is_given_back() -> None:
    batcher = Batcher(lambda inputs: inputs, size=1, places=1)
    with batcher.place():
        assert batcher.taken == 1
        with pytest.raises(Busy), batcher.place():
            pass
    with batcher.place():
        pass
    assert batcher.taken == 0
    batcher.close()
