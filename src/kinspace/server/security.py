"""Access to the server: allowed host names, the token, and security headers for browsers.

Starlette's TrustedHostMiddleware is not used: it answers 400 with plain text instead of 421 with
the JSON error of all other routes, and cuts IPv6 addresses such as [::1]:8000 at their first colon
in the older versions that FastAPI accepts.
"""

from __future__ import annotations

import hmac
import json
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kinspace.server.server_settings import ServerSettings

__all__ = ["COOKIE", "HEADERS", "SecurityMiddleware"]

COOKIE = "kinspace-session"
# need no token: the page and the health check contain nothing of the gallery
PUBLIC = frozenset({"/", "/app.js", "/map.js", "/style.css", "/docs", "/docs.js", "/healthz"})
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


class SecurityMiddleware:
    """Checks host name, origin and token of each request, and adds headers to each response.

    A browser cannot send the token with each picture of a page. POST /api/session with the token
    sets a session cookie instead: a random value that no script can read.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # the report has a policy of its own
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        own = self._own_response(scope)
        respond: ASGIApp = self.app if own is None else own
        await respond(scope, receive, send_with_headers)

    def _own_response(self, scope: Scope) -> Response | None:
        """An error or a new session; None if the application answers the request."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        allowed = self.settings.hosts
        if allowed is not None and _host_name(host) not in map(str.lower, allowed):
            names = ", ".join(allowed)
            return _error(421, f"host: expected one of {names}, got another; see --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, "origin: expected a request of this page, got one from another page")
        starts_session = scope["path"] == LOGIN and scope["method"] == "POST"
        if scope["path"] in PUBLIC or self.settings.token is None:
            return self._new_session() if starts_session else self._other_login(scope)
        has_token = self._has_token(headers.get("authorization", ""))
        if has_token and starts_session:
            return self._new_session()
        if has_token or self._has_session(headers.get("cookie", "")):
            return self._other_login(scope)
        error = _error(401, "token: expected 'Authorization: Bearer ...', got none or another")
        error.headers["WWW-Authenticate"] = "Bearer"
        return error

    def _other_login(self, scope: Scope) -> Response | None:
        """An error for another method than POST at the address that starts a session."""
        if scope["path"] != LOGIN:
            return None
        error = _error(405, "Method Not Allowed")
        error.headers["Allow"] = "POST"
        return error

    def _has_token(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        token = self.settings.token or ""
        # compare_digest: the time it takes reveals nothing about the token
        equal = hmac.compare_digest(given.strip().encode(), token.encode())
        return equal and scheme.lower() == "bearer"

    def _has_session(self, cookie: str) -> bool:
        try:
            found = SimpleCookie(cookie).get(COOKIE)
        except CookieError:
            return False
        value = "" if found is None else found.value
        return hmac.compare_digest(value.encode(), self._session.encode())

    def _new_session(self) -> Response:
        response = Response(json.dumps({"token": "accepted"}), media_type="application/json")
        response.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return response


def _host_name(host: str) -> str:
    """A Host header without its port, in lower case.

    >>> _host_name("localhost:8000"), _host_name("[::1]:80"), _host_name("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and not name.endswith(":") else host).lower()


def _error(code: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, code)
