"""Limits of an upload: bytes, time, file formats (by content) and pixels."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace._core.picture_process import PictureLimits, RefusedPicture
from kinspace.server.server_settings import ServerSettings

__all__ = ["FORMATS", "UploadLimitMiddleware", "check_size", "picture_limits", "refusal"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
FORMAT_NAMES = "JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF"
FORM_BYTES = 4096  # of a form around its file


def check_size(size: int, settings: ServerSettings) -> None:
    """Raise an HTTPException for an upload of so many bytes, if they are none or too many.

    >>> check_size(0, ServerSettings())
    Traceback (most recent call last):
    starlette.exceptions.HTTPException: 400: picture: expected a picture, got an empty file
    """
    if not size:
        raise HTTPException(400, "picture: expected a picture, got an empty file")
    if size > settings.max_upload_bytes:
        raise HTTPException(413, _too_large_text(settings))


def picture_limits(settings: ServerSettings, resize: int, fit: str) -> PictureLimits:
    """What a process that decodes uploads may use, and the square that it makes of them."""
    return PictureLimits(
        FORMATS,
        settings.max_pixels,
        settings.decode_memory,
        settings.decode_timeout,
        resize,
        fit,
    )


def refusal(refused: RefusedPicture, settings: ServerSettings) -> HTTPException:
    """The response to a picture that is not decoded.

    >>> refusal(RefusedPicture("time", "10 seconds"), ServerSettings()).status_code
    413
    """
    if refused.kind == "broken":
        return HTTPException(400, f"picture: {refused.reason}")
    if refused.kind == "format":
        return HTTPException(415, f"picture: expected {FORMAT_NAMES}, got {refused.reason}")
    expected = {
        "pixels": f"a picture of at most {settings.max_pixels:,} pixels",
        "time": f"one that is decoded in {settings.decode_timeout:g} seconds",
        "memory": f"one that is decoded with {settings.decode_memory:,} bytes",
    }
    got = refused.reason if refused.kind == "pixels" else "another"
    return HTTPException(413, f"picture: expected {expected[refused.kind]}, got {got}")


def _too_large_text(settings: ServerSettings) -> str:
    return f"picture: expected at most {settings.max_upload_bytes:,} bytes, got more"


class UploadLimitMiddleware:
    """Refuses a request whose body is too long or too slow, before all of it is read."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit, read, complete = self.settings.max_upload_bytes + FORM_BYTES, 0, False
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        too_long = declared.isdigit() and int(declared) > limit
        loop = asyncio.get_running_loop()
        end = loop.time() + self.settings.body_timeout

        async def limited() -> Message:
            nonlocal read, complete
            if complete:  # only the disconnect message can follow
                return await receive()
            if too_long:
                raise HTTPException(413, _too_large_text(self.settings))
            try:
                left = min(self.settings.read_timeout, end - loop.time())
                message = await asyncio.wait_for(receive(), left)
            except TimeoutError:
                raise HTTPException(
                    408, "expected the complete request, got a part of it"
                ) from None
            read += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if read > limit:
                raise HTTPException(413, _too_large_text(self.settings))
            return message

        await self.app(scope, limited, send)
