"""/openapi.json says of every route with which status and which kind of content it answers.

`running` compares every response of the other tests here with it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from kinspace.inference import EmbeddingModel
from kinspace.server import openapi
from kinspace.server.connections import limited_protocol
from kinspace.server.server_settings import ServerSettings
from web_servers import get, picture, post, running, upload

ERRORS = {"400", "401", "403", "408", "413", "421", "500", "503"}


def test_every_error_of_every_route_is_named_and_has_one_form(server: str) -> None:
    paths = get(f"{server}/openapi.json").json()["paths"]
    assert len(paths) == 12
    for path, methods in paths.items():
        for operation in methods.values():
            responses = operation["responses"]
            assert set(responses) >= {"200", *ERRORS}, path
            for code in set(responses) - {"200"}:
                content = responses[code]["content"]
                schema = content["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}, (path, code)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/about", openapi.About),
        ("/api/classes", openapi.Classes),
        ("/api/pictures", openapi.PictureList),
        ("/api/map", openapi.MapPositions),
        ("/api/neighbors/digit%205", openapi.GalleryNeighbors),
        ("/healthz", openapi.Health),
        ("/api/nothing", openapi.Error),
    ],
)
def test_a_response_has_the_form_that_is_described(server: str, path: str, kind: Any) -> None:
    found = get(server + path).json()
    TypeAdapter(kind).validate_python(found, strict=True)
    described = kind.model_json_schema()["properties"]
    assert set(found) <= set(described)


def test_the_answers_to_a_picture_have_the_form_that_is_described(server: str) -> None:
    found = upload(server, picture()).json()
    openapi.SearchResult.model_validate(found, strict=True)
    verdict = openapi.Verdict.model_json_schema()["properties"]
    neighbor = openapi.Neighbor.model_json_schema()["properties"]
    assert set(found["verdict"]) == set(verdict)
    assert set(found["neighbors"][0]) == set(neighbor)
    openapi.Embedding.model_validate(upload(server, picture(), "/api/encode").json())


def test_a_token_is_in_the_description_where_there_is_one(model: EmbeddingModel) -> None:
    token = "moths-fly-at-night"
    with running(model, ServerSettings(token=token)) as base:
        access = {"Authorization": f"Bearer {token}"}
        schema = get(f"{base}/openapi.json", headers=access).json()
        assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
        assert schema["paths"]["/healthz"]["get"]["security"] == []
        assert schema["paths"]["/api/search"]["post"]["security"] == [{"token": []}]
        assert get(f"{base}/api/session", headers=access).status_code == 405
        assert post(f"{base}/api/session", headers=access).json() == {"token": "accepted"}


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, "moths-fly-at-night"])
def test_schemathesis_finds_no_mismatch(
    model: EmbeddingModel, token: str | None, tmp_path: Path
) -> None:
    """Its own check of which pictures are accepted is left out: random bytes are no picture."""
    pytest.importorskip("schemathesis", reason="pip install schemathesis")
    settings = ServerSettings(token=token)
    access = [] if token is None else ["-H", f"Authorization: Bearer {token}"]
    with running(model, settings, http=limited_protocol(settings)) as base:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{base}/openapi.json"]
        options = ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        options += ["--max-examples", "25", "--seed", "1", "--request-timeout", "60"]
        done = subprocess.run(
            [*command, *options, *access],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "Selected: 13/13" in done.stdout
