"""Tokens, host names and security headers."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kinspace.inference import EmbeddingModel
from kinspace.server import serve
from kinspace.server.server_settings import LOCAL_HOSTS, ServerSettings
from web_servers import get, picture, post, running, upload

TOKEN = "moths-fly-at-night"


@pytest.fixture(scope="module")
def guarded(model: EmbeddingModel) -> Iterator[str]:
    with running(model, ServerSettings(token=TOKEN)) as address:
        yield address


def test_every_answer_has_the_headers(server: str) -> None:
    for path in ("/", "/api/classes", "/thumb/1.jpg", "/nowhere", "/api/neighbors/x"):
        headers = get(server + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Cookie": "kinspace-session="},
        {"Cookie": f"kinspace-session={TOKEN}"},
        {"Cookie": "kinspace-session=\\303; =;;"},
    ],
)
def test_without_the_token_nothing_of_the_gallery_is_visible(
    guarded: str, headers: dict[str, str]
) -> None:
    for path in ("/api/about", "/api/map", "/thumb/1.jpg", "/metrics", "/openapi.json", "/x"):
        answer = get(guarded + path, headers=headers)
        assert answer.status_code == 401
        assert "token" in answer.json()["error"]
        assert answer.headers["www-authenticate"] == "Bearer"
    assert post(f"{guarded}/api/search", headers=headers).status_code == 401
    assert post(f"{guarded}/api/session", headers=headers).status_code == 401


def test_the_page_and_the_health_are_open(guarded: str) -> None:
    for path in ("/", "/app.js", "/map.js", "/style.css", "/healthz"):
        assert get(guarded + path).status_code == 200


def test_the_token_gives_access_and_so_does_its_session(guarded: str) -> None:
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert get(f"{guarded}/api/about", headers=right).status_code == 200
    with httpx.Client(base_url=guarded, timeout=60) as client:
        answer = client.post("/api/session", headers=right)
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/thumb/1.jpg").status_code == 200
        files = {"picture": picture()}
        assert client.post("/api/search", files=files).status_code == 200


def test_another_host_name_or_another_page_is_refused(server: str) -> None:
    assert get(server, headers={"Host": "evil.example"}).status_code == 421
    assert get(server, headers={"Host": "localhost:99"}).status_code == 200
    foreign = {"Origin": "http://evil.example"}
    assert post(f"{server}/api/search", headers=foreign).status_code == 403
    own = {"Origin": server}
    assert get(f"{server}/api/about", headers=own).status_code == 200


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("[::1]:8000", 200),
        ("[::1]", 200),
        ("LOCALHOST", 200),
        ("gallery.example:80", 200),
        ("[::2]:8000", 421),
        ("[::1].evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_host_names_with_ports_ipv6_and_capitals(
    model: EmbeddingModel, host: str, code: int
) -> None:
    settings = ServerSettings(hosts=(*LOCAL_HOSTS, "Gallery.Example"))
    with running(model, settings) as server:
        answer = get(f"{server}/healthz", headers={"Host": host})
    assert answer.status_code == code
    assert ("error" in answer.json()) == (code == 421)


def test_other_machines_need_a_token(run: Path) -> None:
    with pytest.raises(ValueError, match=r"other machines; give a token .*KINSPACE_TOKEN"):
        serve(run, address=("0.0.0.0", 8000), device="cpu")


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        ServerSettings(token="1234")


def test_no_answer_shows_the_path_of_the_run(server: str, run: Path) -> None:
    assert str(run.parent) not in get(f"{server}/api/about").text
    assert str(run.parent) not in upload(server, b"GIF89a" + bytes(50)).text
