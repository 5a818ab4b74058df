"""Who may ask, under which name, and what a browser may do with the answer."""

from __future__ import annotations

import hmac
import json
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace.server.server_settings import Settings

__all__ = ["COOKIE", "HEADERS", "Guard"]

COOKIE = "kinspace-session"
# the page and whether the server lives: nothing of the gallery is in them
OPEN = frozenset({"/", "/app.js", "/map.js", "/style.css", "/docs", "/docs.js", "/healthz"})
LOGIN = "/api/session"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Names, tokens and headers, before anything else is done with a request.

    A browser cannot send the token with every picture of a page: with the token once, POST
    /api/session sets a cookie of a random value that no script can read.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope)
        answer: ASGIApp = self.app if refused is None else refused
        await answer(scope, receive, guarded)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.settings.hosts is not None and _name(host) not in self.settings.hosts:
            names = ", ".join(self.settings.hosts)
            return _error(421, f"host: expected one of {names}, got another; see --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, "origin: expected a request of this page, got another page's")
        if scope["path"] in OPEN or self.settings.token is None:
            return self._session_answer() if self._asks_for_session(scope) else None
        bearer = self._is_token(headers.get("authorization", ""))
        if self._asks_for_session(scope) and bearer:
            return self._session_answer()
        if bearer or self._has_session(headers.get("cookie", "")):
            return None
        refused = _error(401, "token: expected 'Authorization: Bearer ...', got none or another")
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused

    def _is_token(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        token = self.settings.token or ""
        # the length of the time taken says nothing about the token
        right = hmac.compare_digest(given.strip().encode(), token.encode())
        return right and scheme.lower() == "bearer"

    def _has_session(self, cookie: str) -> bool:
        try:
            found = SimpleCookie(cookie).get(COOKIE)
        except CookieError:
            return False
        value = "" if found is None else found.value
        return hmac.compare_digest(value.encode(), self._session.encode())

    def _asks_for_session(self, scope: Scope) -> bool:
        return bool(scope["path"] == LOGIN and scope["method"] == "POST")

    def _session_answer(self) -> Response:
        answer = Response(json.dumps({"token": "accepted"}), media_type="application/json")
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return answer


def _name(host: str) -> str:
    """A host without its port.

    >>> _name("localhost:8000"), _name("[::1]:80"), _name("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and not name.endswith(":") else host).lower()


def _error(code: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, code)
