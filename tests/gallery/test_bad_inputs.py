"""Whatever comes, a 4xx with a reason; the server lives on."""

import random
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from gallery.servers import picture, running, upload
from kinspace.bundle import Model
from kinspace.gallery.settings import Settings
from odd_pictures import bomb, encoded, scene


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
def test_pictures_that_are_none(server: str, path: str, data: bytes, code: int, word: str) -> None:
    refused(upload(server, data, path), code, word)


def test_questions_that_make_no_sense(server: str) -> None:
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
    refused(httpx.post(f"{server}/api/search"), 422, "picture")
    refused(httpx.post(f"{server}/api/search", data={"picture": "text"}), 422, "picture")
    refused(httpx.get(f"{server}/api/search"), 405, "Method Not Allowed")
    refused(httpx.get(f"{server}/api/neighbors/nobody"), 404, "id of the gallery")
    refused(httpx.get(f"{server}/api/neighbors/digit 1?k=x"), 422, "k:")
    refused(httpx.get(f"{server}/nowhere"), 404, "Not Found")


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
def test_no_path_leads_to_the_disk(server: str, name: str) -> None:
    """Sent as it is: a client library would tidy it up."""
    where = urlsplit(server)
    for path in (f"/thumb/{name}.jpg", f"/api/neighbors/{name}", f"/{name}"):
        with socket.create_connection((where.hostname, where.port), 10) as line:
            line.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n\r\n".encode()
            )
            said = b""
            while part := line.recv(65536):
                said += part
        assert said.split()[1].startswith(b"4"), said[:200]
        assert b"root:" not in said


def test_too_many_bytes_and_pixels(model: Model) -> None:
    settings = Settings(upload_bytes=20_000, pixels=10_000)
    with running(model, settings) as server:
        refused(upload(server, b"\xff\xd8" + bytes(21_000)), 413, "20,000 bytes")
        refused(upload(server, b"\xff\xd8" + bytes(3_000_000)), 413, "20,000 bytes")

        def endless() -> object:  # no length is announced
            yield b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a"\r\n\r\n'
            for _ in range(40):
                yield bytes(1000)

        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        answer = httpx.post(f"{server}/api/search", content=endless(), headers=kind)
        refused(answer, 413, "20,000 bytes")
        refused(upload(server, encoded(scene(2, 101), "jpeg")), 413, "10,000 pixels")
        assert upload(server, encoded(scene(2, 100), "jpeg")).status_code == 200


def test_a_client_that_falls_silent_is_let_go(model: Model) -> None:
    with running(model, Settings(seconds=0.2)) as server:
        where = urlsplit(server)
        with socket.create_connection((where.hostname, where.port), 10) as line:
            head = (
                f"POST /api/search HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Length: 500\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n"
            )
            line.sendall(head.encode())
            assert b" 408 " in line.recv(65536).split(b"\r\n")[0]


@pytest.mark.parametrize("turns", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_malformed_uploads_do_no_harm(server: str, turns: int) -> None:
    chance = random.Random(0)
    whole = [encoded(scene(n, 40), kind) for n, kind in enumerate(("jpeg", "png", "gif", "webp"))]
    codes = set()
    with httpx.Client(base_url=server, timeout=60) as client:
        for turn in range(turns):
            data = bytearray(chance.choice(whole))
            for _ in range(chance.randrange(1, 30)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            data = data[: chance.randrange(1, len(data) + 1)] if turn % 3 else data
            name = chance.choice(
                ["a.jpg", "../../etc/passwd", "x" * 3000, "夜蛾.png", "", ".", "CON"]
            )
            odd = {"X-Odd": "y" * chance.choice([1, 9000])}
            files = {chance.choice(["picture", "picture", "other"]): (name, bytes(data))}
            answer = client.post("/api/search", files=files, headers=odd)
            codes.add(answer.status_code)
            assert answer.status_code == 200 or "error" in answer.json()
            body = bytes(chance.randrange(256) for _ in range(200))
            kind = chance.choice(["multipart/form-data", "multipart/form-data; boundary=b", "a/b"])
            raw = client.post("/api/search", content=body, headers={"Content-Type": kind})
            codes.add(raw.status_code)
        assert max(codes) < 500, codes
        assert {400, 415, 422} <= codes
        assert client.get("/healthz").status_code == 200
