"""Invalid requests get a 4xx with a reason, and the server goes on."""

import contextlib
import io
import os
import random
import signal
import socket
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image

from kinspace._core.picture_process import read_limited
from kinspace.data.pictures import decode
from kinspace.inference import EmbeddingModel
from kinspace.server.server_settings import ServerSettings
from kinspace.server.upload_limits import FORMATS
from malformed_requests import KINDS
from odd_pictures import bomb, encoded, scene
from web_servers import get, picture, post, running, upload


def refused(answer: httpx.Response, code: int, word: str) -> None:
    assert answer.status_code == code, answer.text
    assert word in answer.json()["error"]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["/api/search", "/api/encode"])
@pytest.mark.parametrize(
    ("data", "code", "word"),
    [
        (b"", 400, "empty"),
        (b"this is no picture\n" * 20, 415, "JPEG, PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "JPEG, PNG"),
        (bomb(), 413, "pixels"),
        (encoded(scene(1, 200), "jpeg")[:800], 400, "picture"),
        (encoded(scene(1, 64), "png")[:300], 400, "picture"),
    ],
)
def test_other_files_are_refused(server: str, path: str, data: bytes, code: int, word: str) -> None:
    refused(upload(server, data, path), code, word)


def test_invalid_queries_are_refused(server: str) -> None:
    good = picture()
    refused(upload(server, good, k=0), 400, "k: expected 1 to 100, got 0")
    refused(upload(server, good, k=101), 400, "k: expected")
    refused(upload(server, good, k="many"), 422, "k:")
    refused(upload(server, good, k="9" * 5000), 422, "k:")
    refused(upload(server, good, filter="{"), 400, "JSON")
    refused(upload(server, good, filter="[" * 5000), 400, "JSON")
    refused(upload(server, good, filter="[1]"), 400, "object")
    refused(upload(server, good, filter='{"class": "moon"}'), 400, "'moon'")
    refused(upload(server, good, filter='{"class": []}'), 400, "none")
    refused(upload(server, good, filter='{"class": [{}]}'), 400, "classes of the gallery")
    refused(upload(server, good, filter='{"color": true}'), 400, "'color'")
    refused(upload(server, good, filter='{"part=test": 3}'), 400, "true or false")
    refused(post(f"{server}/api/search"), 422, "picture")
    refused(post(f"{server}/api/search", data={"picture": "text"}), 422, "picture")
    refused(get(f"{server}/api/search"), 405, "Method Not Allowed")
    either = httpx.delete(f"{server}/api/pictures", timeout=60)
    refused(either, 405, "Method Not Allowed")
    assert either.headers["allow"] == "GET, POST"
    refused(get(f"{server}/api/neighbors/nobody"), 404, "id of the gallery")
    refused(get(f"{server}/api/neighbors/digit 1?k=x"), 422, "k:")
    refused(get(f"{server}/nowhere"), 404, "Not Found")


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2fetc%2fpasswd",
        "..%2frun.json%00",
        "../run",
        "..\\run",
        "-1",
        "240",
        "9" * 400,
        "1e1",
        "0x1",
        "\u0661",  # a digit, but no ASCII
        "%00",
        "1.jpg%00",
    ],
)
def test_no_path_of_a_request_reaches_the_disk(server: str, name: str) -> None:
    """Sent as raw bytes, because a client library would normalize the path."""
    where = urlsplit(server)
    for path in (f"/thumb/{name}.jpg", f"/api/neighbors/{name}", f"/{name}"):
        with socket.create_connection((where.hostname, where.port), 10) as line:
            line.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode()
            )
            response = b""
            while part := line.recv(65536):
                response += part
        assert response.split()[1].startswith(b"4"), response[:200]
        assert b"root:" not in response


def test_too_many_bytes_and_pixels_are_refused(model: EmbeddingModel) -> None:
    settings = ServerSettings(max_upload_bytes=20_000, max_pixels=10_000)
    with running(model, settings) as server:
        refused(upload(server, b"\xff\xd8" + bytes(21_000)), 413, "20,000 bytes")
        refused(upload(server, b"\xff\xd8" + bytes(3_000_000)), 413, "20,000 bytes")

        def endless() -> object:  # no length is announced
            yield b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
            for _ in range(40):
                yield bytes(1000)

        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = post(f"{server}/api/search", content=endless(), headers=kind)
        refused(answer, 413, "20,000 bytes")
        refused(upload(server, encoded(scene(2, 101), "jpeg")), 413, "10,000 pixels")
        assert upload(server, encoded(scene(2, 100), "jpeg")).status_code == 200


def test_a_client_that_stops_sending_is_refused(model: EmbeddingModel) -> None:
    with running(model, ServerSettings(read_timeout=0.2)) as server:
        where = urlsplit(server)
        with socket.create_connection((where.hostname, where.port), 10) as line:
            head = (
                f"POST /api/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 500\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
            )
            line.sendall(head.encode())
            assert b" 408 " in line.recv(65536).split(b"\r\n")[0]


# the form's parser leaves the file of a part that never ends to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_malformed_requests_do_no_harm(server: str, kind: str) -> None:
    """Fifty of each kind: none makes the server fail or stop answering."""
    rng = random.Random(kind)
    codes = Counter(code_of(server, KINDS[kind](rng)) for _ in range(50))
    assert set(codes) <= {200, 400, 404, 413, 414, 415, 422, 431}, codes
    # changed bytes, and huge headers that are still allowed, may leave a good picture
    refused = codes.total() - codes[200]
    assert refused == 50 if kind in ALWAYS_REFUSED else refused > 0, codes
    assert get(f"{server}/healthz").status_code == 200
    assert upload(server, picture()).status_code == 200


ALWAYS_REFUSED = ("bombs", "wrong types", "odd names", "broken forms")


def code_of(server: str, request: bytes) -> int:
    """The status code of the response to these bytes."""
    where = urlsplit(server)
    with socket.create_connection((where.hostname, where.port), 60) as line:
        with contextlib.suppress(ConnectionError):  # it may answer, and close, before it has all
            line.sendall(request.replace(b"Host: 127.0.0.1", b"Host: " + where.netloc.encode()))
        response = b""
        with contextlib.suppress(ConnectionError):
            while got := line.recv(65536):
                response += got
    assert response, request[:300]
    assert b"Traceback" not in response
    return int(response.split()[1])


def test_a_tiff_of_many_directories_is_decoded_at_once() -> None:
    """Counting them takes half a minute; the first one is all that a search needs."""
    picture = Image.new("RGB", (40, 30), "red")
    data = io.BytesIO()
    picture.save(data, "tiff")
    tiff = bytearray(data.getvalue())
    [first] = struct.unpack_from("<I", tiff, 4)
    [entries] = struct.unpack_from("<H", tiff, first)
    directory = bytes(tiff[first : first + 2 + 12 * entries])
    link = first + len(directory)
    for _ in range(40_000):
        struct.pack_into("<I", tiff, link, len(tiff))
        link = len(tiff) + len(directory)
        tiff += directory + bytes(4)
    assert len(tiff) < ServerSettings().max_upload_bytes
    seeks = Counter[int]()

    class Watched(io.BytesIO):
        def seek(self, place: int, whence: int = 0) -> int:
            seeks[place] += 1
            return super().seek(place, whence)

    found = decode(Watched(bytes(tiff)), "many", count_frames=False)
    assert found.getpixel((3, 3)) == (255, 0, 0)
    assert seeks.total() < 1000  # not each of the directories
    assert read_limited(bytes(tiff), FORMATS, 10_000).size == (40, 30)


def wide_png(mode: str = "L", size: tuple[int, int] = (6000, 5000)) -> bytes:
    data = io.BytesIO()
    Image.new(mode, size).save(data, "png")
    return data.getvalue()


def test_a_picture_that_takes_long_to_decode_is_refused_and_its_process_ended(
    model: EmbeddingModel,
) -> None:
    others = children()
    with running(model, ServerSettings(decode_timeout=0.05, decoders=1)) as base:
        refused(upload(base, wide_png()), 413, "decoded in 0.05 seconds")
        name = get(f"{base}/api/pictures").json()["ids"][0]
        assert get(f"{base}/api/neighbors/{name}").status_code == 200
        refused(upload(base, wide_png()), 413, "decoded in 0.05 seconds")  # by another process
    assert children() == others


def test_a_picture_that_takes_much_memory_is_refused_and_the_next_one_is_not(
    model: EmbeddingModel,
) -> None:
    settings = ServerSettings(decode_memory=100 * 2**20, decoders=1)
    with running(model, settings) as base:
        refused(upload(base, wide_png("RGBA")), 413, "decoded with 104,857,600 bytes")
        assert upload(base, picture()).status_code == 200


def test_a_decoder_that_was_killed_is_started_again(model: EmbeddingModel) -> None:
    others = children()
    with running(model, ServerSettings(decoders=1)) as base:
        assert upload(base, picture()).status_code == 200
        [process] = children() - others
        os.kill(process, signal.SIGKILL)
        assert upload(base, picture()).status_code == 200


def test_what_the_decoder_answers_is_what_the_model_reads(model: EmbeddingModel) -> None:
    data = encoded(scene(3, 300), "jpeg")
    with running(model) as base:
        vector = upload(base, data, "/api/encode").json()["vector"]
    with Image.open(io.BytesIO(data)) as same:
        assert vector == pytest.approx(model.encode(same)[0].tolist(), abs=1e-6)


def children() -> set[int]:
    """The processes that decode pictures for this one."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = (status.parent / "cmdline").read_text()
            if parent == os.getpid() and "picture_process" in command:
                found.add(int(status.parent.name))
    return found


def test_a_deep_picture_takes_little_more_than_its_pixels() -> None:
    data = io.BytesIO()
    Image.fromarray(np.zeros((3000, 4000), np.uint16)).save(data, "png")
    read_limited(data.getvalue(), FORMATS, 40_000_000)  # what is imported is there before
    tracemalloc.start()
    read_limited(data.getvalue(), FORMATS, 40_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 3000 * 4000  # bytes a pixel; NumPy's, Pillow's are not traced
