"""What the responses of the JSON interface look like, for /openapi.json.

The responses themselves are made as JSON at once, by `kinspace.server.queries` and `catalog`:
`tests/server/test_openapi.py` holds them to what is said here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, Field

__all__ = [
    "About",
    "ChangedPicture",
    "Classes",
    "Embedding",
    "Error",
    "GalleryNeighbors",
    "Health",
    "MapPositions",
    "PictureList",
    "SearchResult",
    "errors",
    "json_response",
    "media_response",
    "schema_with_access",
]


class Error(BaseModel):
    """Why a request was refused, in a line."""

    error: str


class Neighbor(BaseModel):
    """A picture of the gallery."""

    row: int
    id: str
    class_name: str = Field(alias="class")
    similarity: float
    same: bool | None = Field(description="Of one class with the query; null without thresholds.")


class Verdict(BaseModel):
    """The class of a picture, or unknown."""

    class_name: str = Field(alias="class")
    best: str
    known: bool
    confidence: float | None
    strangers: float | None
    similarity: float
    exact: bool
    agreeing: list[int]
    headline: str
    evidence: str
    text: str


class SearchResult(BaseModel):
    """The class of an uploaded picture and its neighbors."""

    verdict: Verdict | None = Field(description="null for a gallery without classes.")
    neighbors: list[Neighbor]


class Embedding(BaseModel):
    """A vector of length 1."""

    vector: list[float]


class GalleryNeighbors(BaseModel):
    """The neighbors of a picture of the gallery."""

    row: int
    id: str
    neighbors: list[Neighbor]


class ChangedPicture(BaseModel):
    """A picture that was added, or whose class was changed, as it is now."""

    row: int
    id: str
    class_name: str = Field(alias="class")


class About(BaseModel):
    """The run and its gallery."""

    name: str
    data: str
    pictures: int
    dim: int
    thresholds: dict[str, Any] | None
    uncalibrated: str | None
    trained: bool
    backbone: str | None
    results: dict[str, Any] | None
    report: bool = Field(description="Whether the page of kinspace report is at /report/.")
    upload_bytes: int
    editable: bool = Field(description="Whether pictures can be added and classes changed.")


class ClassSize(BaseModel):
    """A class and its number of pictures."""

    name: str
    label: int
    pictures: int


class AttributeSize(BaseModel):
    """An attribute and the number of pictures that have it."""

    name: str
    pictures: int


class Classes(BaseModel):
    """Classes and attributes of the gallery."""

    classes: list[ClassSize]
    attributes: list[AttributeSize]


class PictureList(BaseModel):
    """The pictures of the gallery by row."""

    ids: list[str]
    labels: list[int] | None
    attributes: dict[str, str]


class MapPositions(BaseModel):
    """The map; positions when it is ready."""

    state: str = Field(description="drawing, ready or failed.")
    x: list[int] | None = None
    y: list[int] | None = None


class Health(BaseModel):
    """The server answers."""

    status: str


REASONS = {
    400: "The request is no HTTP, or a value in it is invalid.",
    401: "The token is missing or another one.",
    403: "The request comes from another page, or the server does not change its gallery.",
    404: "The gallery has no such picture.",
    408: "The request did not arrive in time.",
    413: "The upload has too many bytes or pixels, or takes too long or too much memory to decode.",
    415: "The upload is no picture in one of the formats.",
    421: "The server is not known by this host name.",
    422: "A value is missing or of another type.",
    500: "The server failed.",
    503: "Too many connections, or pictures at one time; try again.",
}
EVERYWHERE = (400, 401, 403, 408, 413, 421, 500, 503)
PUBLIC = "/healthz"


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The error responses of a route, with those that every route has.

    >>> sorted(errors(404))
    [400, 401, 403, 404, 408, 413, 421, 500, 503]
    """
    return {
        code: {"model": Error, "description": REASONS[code]}
        for code in sorted({*EVERYWHERE, *codes})
    }


def json_response(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """A response of JSON in the form of a model."""
    return {200: {"model": model, "description": model.__doc__}}


def media_response(kind: str, description: str) -> dict[int | str, dict[str, Any]]:
    """A response that is no JSON."""
    return {200: {"content": {kind: {}}, "description": description}}


def schema_with_access(app: FastAPI, *, token: bool) -> Callable[[], dict[str, Any]]:
    """The description of an app, with the session of a browser and, if there is one, the token."""
    make = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = make()
            schema["paths"]["/api/session"] = {"post": _session()}
            if token:
                bearer = {"type": "http", "scheme": "bearer"}
                schema["components"]["securitySchemes"] = {"token": bearer}
                for path, methods in schema["paths"].items():
                    for operation in methods.values():
                        operation["security"] = [] if path == PUBLIC else [{"token": []}]
        assert app.openapi_schema is not None
        return app.openapi_schema

    return described


def _session() -> dict[str, Any]:
    """POST /api/session, which `SecurityMiddleware` answers."""
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    codes = EVERYWHERE
    accepted = {"type": "object", "properties": {"token": {"type": "string"}}}
    return {
        "summary": "Session",
        "description": "A session cookie for a browser, in return for the token.",
        "operationId": "session",
        "responses": {
            "200": {
                "description": "The session is in the cookie.",
                "content": {"application/json": {"schema": accepted}},
            },
            **{str(code): {"description": REASONS[code], "content": error} for code in codes},
        },
    }
