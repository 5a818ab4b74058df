"""What may be uploaded: so many bytes in so much time, a picture by its content, so many pixels."""

from __future__ import annotations

import asyncio
import io
import warnings
from functools import lru_cache

from PIL import Image, UnidentifiedImageError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace.data.pictures import decode
from kinspace.data.unreadable import UnreadablePicture
from kinspace.server.server_settings import Settings

__all__ = ["BodyLimit", "read_upload"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
NAMES = "JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF"
FORM = 4096  # bytes of a form around its file


def read_upload(data: bytes, settings: Settings) -> Image.Image:
    """An upright RGB picture, or the HTTPException that says why not.

    >>> read_upload(b"hello", Settings())
    Traceback (most recent call last):
    starlette.exceptions.HTTPException: 415: picture: expected JPEG, PNG, ... got another kind of
    file
    """
    if not data:
        raise HTTPException(400, "picture: expected a picture, got an empty file")
    if len(data) > settings.upload_bytes:
        raise HTTPException(413, _too_large(settings))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own bomb limit: there is one below
            # the header alone: nothing is unpacked before its size is known
            with Image.open(io.BytesIO(data), formats=_formats()) as picture:
                width, height = picture.size
    except UnidentifiedImageError:
        raise HTTPException(415, f"picture: expected {NAMES}, got another kind of file") from None
    except Exception as error:  # noqa: BLE001 - Pillow's plugins raise almost anything
        if isinstance(error, Image.DecompressionBombError):
            raise HTTPException(413, f"picture: expected {_pixels(settings)}, got more") from None
        raise HTTPException(400, f"picture: cannot be read: {error}") from None
    if width * height > settings.pixels:
        raise HTTPException(
            413, f"picture: expected {_pixels(settings)}, got {width:,} x {height:,}"
        )
    try:
        return decode(io.BytesIO(data), "picture")
    except UnreadablePicture as error:
        raise HTTPException(400, str(error)) from None


@lru_cache(1)
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)  # AVIF is not in every Pillow


def _pixels(settings: Settings) -> str:
    return f"a picture of at most {settings.pixels:,} pixels"


def _too_large(settings: Settings) -> str:
    return f"picture: expected at most {settings.upload_bytes:,} bytes, got more"


class BodyLimit:
    """Ends a request whose body is too long or does not come, before it is read whole."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most, read, whole = self.settings.upload_bytes + FORM, 0, False
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        too_long = announced.isdigit() and int(announced) > most

        async def limited() -> Message:
            nonlocal read, whole
            if whole:  # what is left to come is that the client has gone
                return await receive()
            if too_long:
                raise HTTPException(413, _too_large(self.settings))
            try:
                message = await asyncio.wait_for(receive(), self.settings.seconds)
            except TimeoutError:
                raise HTTPException(408, "expected the whole request, got a part of it") from None
            read += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if read > most:
                raise HTTPException(413, _too_large(self.settings))
            return message

        await self.app(scope, limited, send)
