"""The server's answers equal those of the model."""

import base64
import io
import json

import numpy as np
import pytest

from bundles import digits
from kinspace.inference import EmbeddingModel
from web_servers import ROWS, get, metrics, picture, running, upload


def test_search_answers_as_the_model_does(server: str, model: EmbeddingModel) -> None:
    answer = upload(server, picture(20), k=5)
    assert answer.status_code == 200
    expected = model.classify(digits().pictures.read(20), 5)
    found = answer.json()
    assert [each["id"] for each in found["neighbors"]] == [each.id for each in expected.neighbors]
    assert found["neighbors"][0]["id"] == "digit 20"
    assert found["neighbors"][0]["similarity"] == pytest.approx(1, abs=1e-5)
    assert found["verdict"]["best"] == expected.best
    assert found["verdict"]["class"] == expected.class_name
    assert found["verdict"]["confidence"] == pytest.approx(expected.confidence, abs=1e-4)


def test_the_dial_of_a_request_is_that_of_the_model(server: str, model: EmbeddingModel) -> None:
    assert model.thresholds is not None
    query = digits().pictures.read(400).rotate(30)
    data = io.BytesIO()
    query.save(data, "png")
    for rate in (0.001, 0.1, 0.5):
        found = upload(server, data.getvalue(), strangers=rate).json()
        expected = model.classify(query, strangers=rate)
        said = found["verdict"]
        assert (said["class"], said["known"]) == (expected.class_name, expected.known)
        assert said["text"] == str(expected)
        assert said["agreeing"] == list(expected.agreeing)
        assert said["strangers"] == pytest.approx(expected.strangers, abs=1e-4)
        assert [each["same"] for each in found["neighbors"]] == [
            each.same for each in expected.neighbors
        ]
    answer = upload(server, data.getvalue(), strangers=0.9)
    assert answer.status_code == 400
    assert "strangers: expected a rate" in answer.json()["error"]
    about = get(f"{server}/api/about").json()["thresholds"]
    assert about["text"] == str(model.thresholds.at())
    assert about["settings"][3]["text"] == str(model.thresholds.settings[3])


def test_encode_gives_the_vector(server: str, model: EmbeddingModel) -> None:
    vector = upload(server, picture(7), "/api/encode").json()["vector"]
    assert vector == pytest.approx(model.encode(digits().pictures.read(7))[0].tolist(), abs=1e-5)


def test_neighbors_of_a_picture_by_its_id(server: str, model: EmbeddingModel) -> None:
    answer = get(f"{server}/api/neighbors/digit%2030?k=4").json()
    assert (answer["row"], answer["id"]) == (30, "digit 30")
    assert [each["row"] for each in answer["neighbors"]] == [
        each.row for each in model.neighbors(30, 4)
    ]


def test_filters_by_class_and_attribute(server: str, model: EmbeddingModel) -> None:
    table = model.table
    assert table.labels is not None
    assert table.attributes is not None
    names = [table.class_name(int(label)) for label in table.labels]
    both = json.dumps({"class": names[:2], "part=train": True})
    for found in (
        upload(server, picture(20), k=100, filter=both).json()["neighbors"],
        get(f"{server}/api/neighbors/digit 5", params={"k": 100, "filter": both}).json()[
            "neighbors"
        ],
    ):
        assert all(each["class"] in names[:2] for each in found)
        train = table.attributes[:, table.attribute_names.index("part=train")] > 0.5
        fits = [row for row in range(ROWS) if train[row] and names[row] in names[:2]]
        assert {each["row"] for each in found} <= set(fits)
        assert len(found) >= min(100, len(fits)) - 1


def test_classes_and_map_describe_the_table(server: str, model: EmbeddingModel) -> None:
    table = model.table
    assert table.labels is not None
    assert table.attributes is not None
    found = get(f"{server}/api/classes").json()
    counts = {each["name"]: each["pictures"] for each in found["classes"]}
    for label in np.unique(table.labels).tolist():
        assert counts[table.class_name(label)] == int((table.labels == label).sum())
    places = get(f"{server}/api/map").json()
    assert places["state"] == "ready"
    assert len(places["x"]) == len(places["y"]) == ROWS
    assert 0 <= min(places["x"] + places["y"]) <= max(places["x"] + places["y"]) <= 10_000
    pictures = get(f"{server}/api/pictures").json()
    assert pictures["ids"] == list(table.ids)
    assert pictures["labels"] == table.labels.tolist()
    for place, name in enumerate(table.attribute_names):
        packed = np.frombuffer(base64.b64decode(pictures["attributes"][name]), np.uint8)
        bits = np.unpackbits(packed, bitorder="little")[:ROWS]
        assert bits.tolist() == (table.attributes[:, place] > 0.5).astype(int).tolist()


def test_thumbnails_are_the_pictures_of_their_rows(server: str) -> None:
    import io

    from PIL import Image

    answer = get(f"{server}/thumb/33.jpg")
    assert answer.headers["content-type"] == "image/jpeg"
    shown = np.asarray(Image.open(io.BytesIO(answer.content)).convert("L").resize((8, 8)), float)
    apart = [
        np.abs(shown - np.asarray(digits().pictures.read(row).convert("L").resize((8, 8)))).mean()
        for row in range(ROWS)
    ]
    assert int(np.argmin(apart)) == 33


def test_health_metrics_and_documentation(server: str) -> None:
    assert get(f"{server}/healthz").json() == {"status": "ok"}
    upload(server, picture(1))
    get(f"{server}/no/such/place")
    answer = get(f"{server}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "such" not in answer.text
    found = metrics(server)

    def value(name: str, **labels: str) -> float:
        return found[f"kinspace_{name}", frozenset(labels.items())]

    assert value("requests_total", method="POST", route="/api/search", code="200") >= 1
    assert value("requests_total", method="GET", route="other", code="404") >= 1
    assert value("batch_pictures_total") >= value("batches_total") >= 1
    count = value("request_seconds_count", route="/api/search")
    assert value("request_seconds_bucket", route="/api/search", le="+Inf") == count
    assert value("request_seconds_sum", route="/api/search") > 0
    paths = get(f"{server}/openapi.json").json()["paths"]
    assert {"/api/search", "/api/encode", "/healthz", "/metrics"} <= set(paths)
    assert "http" not in get(f"{server}/docs").text.replace("http://127.0.0.1", "")


def test_two_apps_in_one_process_count_their_own_requests(
    server: str, model: EmbeddingModel
) -> None:
    get(f"{server}/healthz")
    with running(model) as other:
        get(f"{other}/healthz")
        labels = {"method": "GET", "route": "/healthz", "code": "200"}
        assert metrics(other)["kinspace_requests_total", frozenset(labels.items())] == 1
