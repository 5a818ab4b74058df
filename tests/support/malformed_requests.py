"""Requests as an attacker or a broken program sends them, byte by byte, at random."""

import io
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable

from odd_pictures import bomb, encoded, scene

FORMATS = ("jpeg", "png", "gif", "webp", "bmp", "tiff")
WHOLE = [encoded(scene(n, 40), kind) for n, kind in enumerate(FORMATS)]
NAMES = (
    *(
        "../../etc/passwd",
        "..\\..\\boot.ini",
        "/etc/shadow",
        "file:///etc/passwd",
        "~root",
        "..",
        ".",
    ),
    *("a\x00.jpg", "a\u202egpj.exe", "%2e%2e%2f", "a.jpg/../b", "a.jpg\t.exe", "CON", "", " "),
    *("x" * 3000, "夜蛾.png", "\U0001f98b.jpg", "$(reboot).jpg", "'; drop table", "<script>.jpg"),
)


def post(body: bytes, kind: str = "multipart/form-data; boundary=b", more: bytes = b"") -> bytes:
    head = f"POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n".encode()
    return head + more + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def part(data: bytes, name: str = "a.jpg", field: str = "picture", more: bytes = b"") -> bytes:
    disposition = f'Content-Disposition: form-data; name="{field}"; filename="{name}"'
    return b"--b\r\n" + disposition.encode() + b"\r\n" + more + b"\r\n" + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


def _truncated(rng: random.Random) -> bytes:
    data = rng.choice(WHOLE)
    return post(form(part(data[: rng.randrange(len(data))])))


def _changed(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(WHOLE))
    for _ in range(rng.randrange(1, 30)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return post(form(part(bytes(data))))


def _bomb(rng: random.Random) -> bytes:
    """A few bytes that declare or decompress to very many."""
    wide, high = rng.randrange(20_000, 65_536), rng.randrange(20_000, 65_536)
    text = zlib.compress(bytes(rng.randrange(2, 8) * 2**20))
    chunk = b"zTXt" + b"Comment\x00\x00" + text
    header = b"IHDR" + struct.pack(">IIBBBBB", wide, high, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for body in (chunk, header) if rng.random() < 0.5 else (header,):
        png += struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    small = rng.choice(WHOLE[1:2])
    texts = small[:33] + struct.pack(">I", len(chunk) - 4) + chunk
    texts += struct.pack(">I", zlib.crc32(chunk)) + small[33:]
    bmp = bytearray(WHOLE[4])
    bmp[18:26] = struct.pack("<ii", wide, high)
    gif = bytearray(WHOLE[2])
    gif[6:10] = struct.pack("<HH", wide, high)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.png", bytes(2**20))
    made = (bomb(), png, texts, bytes(bmp), bytes(gif), archive.getvalue())
    return post(form(part(rng.choice(made))))


def _wrong_type(rng: random.Random) -> bytes:
    files = (
        *(
            b"hello\n" * 9,
            b"%PDF-1.7\n1 0 obj",
            b"<svg xmlns='http://www.w3.org/2000/svg'/>",
            b"{}",
        ),
        *(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"<!doctype html><script>"),
        *(b"PK\x03\x04", b"\x7fELF\x02", b"\x00\x00\x00\x18ftypmp42", pickle.dumps(print)),
        *(b"GIF89a", b"\xff\xd8\xff", b"BM", b"II*\x00"),
    )
    fields = (
        *(("k", b"[1]"), ("k", b"1e9"), ("k", b"-3"), ("k", b"\xff\xfe"), ("k", b"NaN")),
        *(("filter", b"7"), ("filter", b'{"class": {"a": 1}}'), ("filter", b'{"class": null}')),
        ("filter", b"\x00"),
    )
    if rng.random() < 0.6:
        return post(form(part(rng.choice(files))))
    name, value = rng.choice(fields)
    field = f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + value
    return post(form(part(WHOLE[0]), field + b"\r\n"))


def _huge_header(rng: random.Random) -> bytes:
    size = rng.choice((9_000, 70_000, 300_000))
    body = form(part(WHOLE[0], more=b"X-Odd: " + b"y" * size + b"\r\n"))
    many = b"".join(b"X-%d: %s\r\n" % (n, b"y" * 40) for n in range(size // 50))
    made = (
        post(form(part(b"none")), more=b"X-Odd: " + b"y" * size + b"\r\n"),
        post(form(part(b"none")), more=many),
        post(form(part(b"none")), more=b"Cookie: " + b"a=b; " * (size // 5) + b"\r\n"),
        post(form(part(b"none")), more=b"Content-Length: " + b"9" * 300 + b"\r\n"),
        post(form(part(b"none")), "multipart/form-data; boundary=" + "b" * size),
        post(body),
        b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    )
    return rng.choice(made)


def _odd_name(rng: random.Random) -> bytes:
    name = rng.choice(NAMES)
    if rng.random() < 0.3:
        name += rng.choice(NAMES)
    return post(form(part(rng.choice((WHOLE[0][:200], b"none")), name)))


def _broken_form(rng: random.Random) -> bytes:
    noise = rng.randbytes(rng.randrange(1, 400))
    whole = form(part(WHOLE[0]))
    made = (
        post(noise, rng.choice(("multipart/form-data", "a/b", "", "text/plain; charset=\x7f"))),
        post(noise),
        post(whole[: rng.randrange(len(whole) - 10)]),
        post(form(part(WHOLE[0], field=rng.choice(("other", "", "picture[]", "Picture"))))),
        post(form(*(part(b"a", field=f"f{n}") for n in range(1500)))),
        post(form(part(noise), part(noise))),
        post(b"picture=a&k=3", "application/x-www-form-urlencoded"),
        post(b'{"picture": "a"}', "application/json"),
        noise + b"\r\n\r\n",
    )
    return rng.choice(made)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "truncated": _truncated,
    "changed": _changed,
    "bombs": _bomb,
    "wrong types": _wrong_type,
    "huge headers": _huge_header,
    "odd names": _odd_name,
    "broken forms": _broken_form,
}
