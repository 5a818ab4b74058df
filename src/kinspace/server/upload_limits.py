"""Limits of an upload: bytes, time, file formats (by content) and pixels."""

from __future__ import annotations

import asyncio
import io
import warnings

from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace.data.pictures import UnreadablePicture, decode, known_formats
from kinspace.server.server_settings import ServerSettings

__all__ = ["UploadLimitMiddleware", "read_upload"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
FORMAT_NAMES = "JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF"
FORM_BYTES = 4096  # of a form around its file


def read_upload(data: bytes, settings: ServerSettings) -> Image.Image:
    """The picture of an upload, upright and RGB; raises an HTTPException if it is invalid.

    >>> read_upload(b"hello", ServerSettings())
    Traceback (most recent call last):
    starlette.exceptions.HTTPException: 415: picture: expected JPEG, PNG, ... got another kind of
    file
    """
    if not data:
        raise HTTPException(400, "picture: expected a picture, got an empty file")
    if len(data) > settings.max_upload_bytes:
        raise HTTPException(413, _too_large_text(settings))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about Pillow's own limit; ours is below
            # reads only the header: nothing is decoded before its size is known
            with Image.open(io.BytesIO(data), formats=known_formats(FORMATS)) as picture:
                width, height = picture.size
    except UnidentifiedImageError:
        raise HTTPException(
            415, f"picture: expected {FORMAT_NAMES}, got another kind of file"
        ) from None
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise almost anything
        if isinstance(error, Image.DecompressionBombError):
            raise HTTPException(
                413, f"picture: expected {_pixels_text(settings)}, got more"
            ) from None
        raise HTTPException(400, f"picture: cannot be read: {error}") from None
    if width * height > settings.max_pixels:
        raise HTTPException(
            413, f"picture: expected {_pixels_text(settings)}, got {width:,} x {height:,}"
        )
    try:
        # the number of frames is not asked for: a file of many directories takes long to count
        return decode(io.BytesIO(data), "picture", formats=FORMATS, count_frames=False)
    except UnreadablePicture as error:
        raise HTTPException(400, str(error)) from None


def _pixels_text(settings: ServerSettings) -> str:
    return f"a picture of at most {settings.max_pixels:,} pixels"


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
