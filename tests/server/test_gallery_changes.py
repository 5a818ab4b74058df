"""Changes of a gallery by requests: who may, what is kept, what is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import kinspace
from kinspace.inference import EmbeddingModel
from kinspace.server.server_settings import ServerSettings
from web_servers import ROWS, get, picture, post, running, upload


@pytest.fixture
def own(run: Path, tmp_path: Path) -> EmbeddingModel:
    return kinspace.load(shutil.copytree(run, tmp_path / "run"), "cpu")


@pytest.fixture
def editable(own: EmbeddingModel) -> Iterator[str]:
    with running(own, ServerSettings(editable=True)) as address:
        yield address


def relabel(base: str, name: str, class_name: str) -> tuple[int, str]:
    answer = post(f"{base}/api/labels", data={"id": name, "class": class_name})
    return answer.status_code, answer.json().get("error", "")


def test_without_edit_nothing_is_changed(server: str, model: EmbeddingModel) -> None:
    for answer in (
        upload(server, picture(300), "/api/pictures", **{"class": "new"}),
        post(f"{server}/api/labels", data={"id": "digit 3", "class": "new"}),
    ):
        assert answer.status_code == 403
        assert "--edit" in answer.json()["error"]
    assert len(model.table) == ROWS


def test_an_added_picture_is_kept_searched_and_shown(editable: str, own: EmbeddingModel) -> None:
    before = get(f"{editable}/api/map").json()
    added = upload(editable, picture(300), "/api/pictures", **{"class": "  a new  one "}).json()
    assert (added["row"], added["class"]) == (ROWS, "a new one")
    assert own.folder is not None
    assert (own.folder / added["id"]).is_file()
    assert get(f"{editable}/api/pictures").json()["ids"][ROWS] == added["id"]
    assert {"name": "a new one", "label": 10, "pictures": 1} in get(
        f"{editable}/api/classes"
    ).json()["classes"]
    places = get(f"{editable}/api/map").json()
    assert places["x"][:ROWS] == before["x"]
    assert len(places["x"]) == ROWS + 1
    image = get(f"{editable}/thumb/{ROWS}.jpg")
    assert image.headers["content-type"] == "image/jpeg"
    again = upload(editable, picture(300), "/api/pictures", **{"class": "another"}).json()
    assert (again["row"], again["class"]) == (ROWS, "another")  # the same picture: its new class
    assert len(kinspace.load(own.folder, "cpu").table) == ROWS + 1


def test_what_is_no_class_or_no_picture_is_refused(editable: str, own: EmbeddingModel) -> None:
    assert relabel(editable, "digit 3", " ")[0] == 400
    assert "name of 1 to 100 letters" in relabel(editable, "digit 3", "x" * 101)[1]
    assert relabel(editable, "digit 3", "a\u202eb")[0] == 400
    assert relabel(editable, "../run.json", "new")[0] == 404
    assert upload(editable, b"no picture", "/api/pictures", **{"class": "new"}).status_code == 415
    assert upload(editable, picture(), "/api/pictures").status_code == 400
    assert len(own.table) == ROWS
    assert "new" not in (own.table.class_names or ())


def test_a_page_from_elsewhere_cannot_change_it(editable: str, own: EmbeddingModel) -> None:
    answer = post(
        f"{editable}/api/labels",
        data={"id": "digit 3", "class": "new"},
        headers={"Origin": "http://elsewhere.example"},
    )
    assert answer.status_code == 403
    assert "new" not in (own.table.class_names or ())


def test_a_gallery_without_classes_takes_pictures_without_one(own: EmbeddingModel) -> None:
    assert own.gallery is not None
    from dataclasses import replace

    from kinspace.search.gallery import Gallery

    own.gallery = Gallery(replace(own.table, labels=None, class_names=None))
    own.thresholds = None
    own.save_gallery()
    with running(own, ServerSettings(editable=True)) as base:
        assert upload(base, picture(300), "/api/pictures", **{"class": "io"}).status_code == 400
        assert upload(base, picture(300), "/api/pictures").json()["row"] == ROWS
        assert relabel(base, "digit 3", "io")[0] == 400
