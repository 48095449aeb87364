"""Who may reach the web application: its token, the names it is known by, and the size of requests.

A page of another site can send requests to a server on this machine, and can make a name of its own
point to it. So ``Host`` must be a known name, and ``Origin``, where a browser sends it, the same.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from http.cookies import SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LOOPBACK", "MAX_BODY", "Access"]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 4 * 2**20
"""The most bytes of a request's body."""

COOKIE = "anabranch_token"

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class TooLargeError(Exception):
    """The body of a request exceeds the limit."""


class Access:
    """ASGI middleware that refuses requests before the application sees them.

    Args:
        app: the application.
        token: what a request must present, as ``Authorization: Bearer …`` or by the cookie that the
            page's ``?token=`` sets; ``None`` for no token.
        hosts: the names by which the application may be reached, without port.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None = None, hosts: Iterable[str] = LOOPBACK
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in SECURITY_HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        response = self._refusal(Request(scope))
        if response is not None:
            await response(scope, receive, secured)
            return
        try:
            await self._app(scope, _bounded(receive), secured)
        except TooLargeError:
            refused = _refused(413, f"The request is larger than {MAX_BODY} bytes.")
            await refused(scope, receive, secured)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that is not let through, ``None`` for one that is."""
        if _host(request.headers.get("host", "")) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            return _refused(421, f"This host name is not known. Known are {known}: --allowed-host.")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return _refused(403, "Requests of other sites are refused.")
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:19]) > MAX_BODY:
            return _refused(413, f"The request is larger than {MAX_BODY} bytes.")
        return self._unknown_caller(request)

    def _unknown_caller(self, request: Request) -> Response | None:
        """Return the answer to a request without the token; the page's own exchanges it once."""
        if self._token is None or any(map(self._is_token, _presented(request.headers))):
            return None
        given = dict(parse_qsl(request.url.query)).get("token")
        if request.url.path == "/" and given is not None and self._is_token(given):
            redirect = RedirectResponse("/", 303)
            redirect.set_cookie(COOKIE, given, httponly=True, samesite="strict", path="/")
            return redirect
        return JSONResponse(
            {"error": "A token is needed. Open the address with ?token=… that the server printed."},
            401,
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), (self._token or "").encode())


def _presented(headers: Headers) -> list[str]:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    cookies: SimpleCookie = SimpleCookie()
    cookies.load(headers.get("cookie", ""))
    found = [bearer] if scheme.lower() == "bearer" else []
    return [*found, *([cookies[COOKIE].value] if COOKIE in cookies else [])]


def _host(header: str) -> str:
    """Return the name in a ``Host`` header, without its port."""
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() else header).lower()


def _bounded(receive: Receive) -> Receive:
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise TooLargeError
        return message

    return bounded


def _refused(status: int, error: str) -> JSONResponse:
    return JSONResponse({"error": error}, status)
