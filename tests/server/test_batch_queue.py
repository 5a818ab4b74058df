"""Concurrent requests get the answers of single ones; a full queue refuses at once."""

import socket
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from torch import Tensor

import kinspace
from kinspace.inference import EmbeddingModel
from kinspace.server.batch_queue import BatchQueue, QueueFull, Vector
from kinspace.server.server_settings import ServerSettings
from web_servers import get, metrics, picture, running, upload


class Gate:
    """Holds the real model back until opened, and notes how large its batches were."""

    def __init__(self, model: EmbeddingModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.sizes = threading.Event(), []
        real = model.embed_inputs

        def held(inputs: Tensor) -> Tensor:
            assert self.opened.wait(30)
            self.sizes.append(len(inputs))
            return real(inputs)

        monkeypatch.setattr(model, "embed_inputs", held)


def wait_for_queue(server: str, length: int) -> None:
    for _ in range(1000):
        if metrics(server)["kinspace_queue_pictures", frozenset()] == length:
            return
        time.sleep(0.01)
    raise AssertionError(f"the queue never had {length} pictures")


def test_eight_at_one_time_get_the_vectors_of_single_ones(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a request takes its slot before its picture is decoded: only what was submitted can be in a
    # batch
    submitted, submit = threading.Semaphore(0), BatchQueue.submit

    def counted(self: BatchQueue, inputs: Tensor) -> Future[Vector]:
        result = submit(self, inputs)
        submitted.release()
        return result

    model = kinspace.load(run, "cpu")
    pictures = [picture(row) for row in range(8)]
    with running(model) as server, ThreadPoolExecutor(8) as clients:
        alone = [upload(server, data, "/api/encode").json()["vector"] for data in pictures]
        gate = Gate(model, monkeypatch)
        monkeypatch.setattr(BatchQueue, "submit", counted)
        pending = [clients.submit(upload, server, data, "/api/encode") for data in pictures]
        assert all(submitted.acquire(timeout=30) for _ in pictures)
        gate.opened.set()
        together = [answer.result().json()["vector"] for answer in pending]
    assert sum(gate.sizes) == 8
    assert len(gate.sizes) <= 2  # what came before the gate was reached, and all the rest
    torch.testing.assert_close(torch.tensor(together), torch.tensor(alone), atol=1e-5, rtol=0)


def test_a_full_queue_answers_at_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = kinspace.load(run, "cpu")
    gate = Gate(model, monkeypatch)
    with running(model, ServerSettings(queue_size=4)) as server, ThreadPoolExecutor(2) as clients:
        pending = [clients.submit(upload, server, picture(row)) for row in range(2)]
        wait_for_queue(server, 2)
        refused = upload(server, picture(3))  # the model is still held
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert "busy" in refused.json()["error"]
        assert get(f"{server}/healthz").status_code == 200
        gate.opened.set()
        assert [answer.result().status_code for answer in pending] == [200, 200]
        wait_for_queue(server, 0)
        assert upload(server, picture(3)).status_code == 200


def test_a_full_queue_refuses_before_the_picture_is_sent(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = kinspace.load(run, "cpu")
    gate = Gate(model, monkeypatch)
    with running(model, ServerSettings(queue_size=1)) as server, ThreadPoolExecutor(1) as clients:
        pending = clients.submit(upload, server, picture(0))
        wait_for_queue(server, 1)
        where = urlsplit(server)
        with socket.create_connection((where.hostname, where.port), 60) as line:
            head = (
                f"POST /api/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 5000\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n\r\n"
            )
            line.sendall(head.encode())  # and nothing of the body
            assert b" 503 " in line.recv(65536).split(b"\r\n")[0]
        gate.opened.set()
        assert pending.result().status_code == 200
        labels = {"method": "POST", "route": "/api/search", "code": "503"}
        assert metrics(server)["kinspace_requests_total", frozenset(labels.items())] == 1


def test_one_bad_input_does_not_spoil_the_batch() -> None:
    entered, opened = threading.Event(), threading.Event()

    def embed(inputs: Tensor) -> Tensor:
        entered.set()
        assert opened.wait(30)
        if bool((inputs < 0).any()):
            raise RuntimeError("negative")
        return inputs

    sizes: list[int] = []
    queue = BatchQueue(embed, batch_size=8, slots=8, on_batch=sizes.append)
    first = queue.submit(torch.zeros(1))
    assert entered.wait(30)
    rest = [queue.submit(torch.tensor([x])) for x in (1.0, -1.0, 2.0, 3.0)]
    assert rest[3].cancel()  # its client has gone
    opened.set()
    assert first.result(30).tolist() == [0.0]
    assert [rest[0].result(30).tolist(), rest[2].result(30).tolist()] == [[1.0], [2.0]]
    with pytest.raises(RuntimeError, match="negative"):
        rest[1].result(30)
    assert queue.submit(torch.ones(1)).result(30).tolist() == [1.0]
    assert sum(sizes) == 4
    queue.close()


def test_a_slot_is_free_again_after_use() -> None:
    queue = BatchQueue(lambda inputs: inputs, batch_size=1, slots=1)
    with queue.slot():
        assert queue.slots_in_use == 1
        with pytest.raises(QueueFull), queue.slot():
            pass
    with queue.slot():
        pass
    assert queue.slots_in_use == 0
    queue.close()


def test_an_address_has_half_of_the_slots_that_the_others_leave() -> None:
    queue = BatchQueue(lambda inputs: inputs, batch_size=1, slots=8)
    with ExitStack() as stack:
        for address, slots in (("a", 4), ("b", 2), ("c", 1)):
            for _ in range(slots):
                stack.enter_context(queue.slot(address))
            assert queue.is_full(address)
            with pytest.raises(QueueFull), queue.slot(address):
                pass
        assert not queue.is_full("d")
    assert queue.slots_in_use == 0
    queue.close()
