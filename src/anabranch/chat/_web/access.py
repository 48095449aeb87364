"""Checks requests to the web application: hosts, origins, tokens, users, rates and body sizes.

A page of another site can point a host name to this machine, so ``Host`` must be a known name, and
``Origin`` the same. Cookies may come from other servers of the host: no code here decodes them.
"""

from __future__ import annotations

import hmac
import inspect
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._aio import ThrottledWarning
from anabranch._budget import Shares
from anabranch._engine import is_async
from anabranch.chat._web.rate_limits import CALLER, Caller, RateLimits, Rates, counted_as, too_many
from anabranch.tool import wrong_kind

Authenticate: TypeAlias = Callable[[Request], Awaitable[str | None] | str | None]
"""Returns the name of the principal that makes a request, ``None`` for an unknown one.

A function that is not ``async`` runs in a thread.
"""

_HOST = re.compile(r"\[[^]/]+\]|[^][/:*\s]+")

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_BODY = 4 * 2**20
"""The most bytes of a request's body."""
MAX_RUN_BODY = 32 * 2**20
"""The most bytes of the body of a request that starts a run, which may have files."""
RUNS = "/agui"

COOKIE = "anabranch_token"

TOO_MANY = 429

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

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

    ``token`` arrives as ``Authorization: Bearer …``, or in the cookie that the page's ``?token=``
    sets. ``authenticate`` names a request's principal. ``hosts`` have no port.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None = None,
        authenticate: Authenticate | None = None,
        hosts: Iterable[str] = LOOPBACK,
        rates: RateLimits | None = None,
        streams: Shares,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._token = token
        self._authenticate = authenticate
        self._rates = Rates(rates, now=now)
        self._streams = streams
        self._hosts = frozenset(host.lower() for host in hosts)
        self._wrong_host = ThrottledWarning(logger)
        self._wrong_origin = ThrottledWarning(logger)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(k.lower().encode(), v.encode()) for k, v in SECURITY_HEADERS.items()]
                if message["status"] == TOO_MANY and scope.get("http_version", "").startswith("1"):
                    extra.append((b"connection", b"close"))  # other protocols do without it
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        response = await self._refusal(Request(scope))
        if response is not None:
            await response(scope, receive, secured)
            return
        most = _most(scope)
        try:
            await self._app(scope, _bounded(receive, most), secured)
        except TooLargeError:
            await _too_large(most)(scope, receive, secured)

    async def _refusal(self, request: Request) -> Response | None:
        try:
            return self._wrong_place(request) or await self._unknown_caller(request)
        except HTTPException as error:
            return _refused(error.status_code, error.detail, error.headers)

    def _wrong_place(self, request: Request) -> Response | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if _name(host) not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            why = f"This host name is unknown. Known: {known}. --allowed-host adds names."
            self._wrong_host.warn("refused a request: %s It has Host %.200r.", why, host)
            return _refused(421, why)
        if origin not in {None, f"http://{host}", f"https://{host}"}:
            why = "The server refuses requests from other sites."
            self._wrong_origin.warn("refused a request: %s It has Origin %.200r.", why, origin)
            return _refused(403, why)
        length = request.headers.get("content-length", "0")
        most = _most(request.scope)
        if not length.isdecimal() or int(length[:19]) > most:
            return _too_large(most)
        return None

    async def _unknown_caller(self, request: Request) -> Response | None:
        principal = await self._principal(request)
        counted = counted_as(request, principal)
        caller = Caller(principal or None, counted, self._rates, self._streams)
        if seconds := self._rates.requests.take(caller.counted_as):
            raise too_many("requests", seconds)
        if self._authenticate is not None and not principal:
            return _refused(401, "Sign in to use this chat.")
        request.scope[CALLER] = caller
        return self._without_token(request)

    async def _principal(self, request: Request) -> str | None:
        """Return the principal that ``authenticate`` names, ``None`` for an unknown one."""
        if self._authenticate is None:
            return None
        if is_async(self._authenticate):
            named: object = self._authenticate(request)
        else:
            named = await run_in_threadpool(self._authenticate, request)
        return _principal_in(await named if inspect.isawaitable(named) else named)

    def _without_token(self, request: Request) -> Response | None:
        """Return the response without a valid token; ``?token=`` sets a cookie."""
        given = _token_in_query(request)
        if self._token is None or self._is_presented(request.headers):
            return None
        page = request.scope.get("root_path", "") + "/"  # the mount point
        if request.scope["path"] == page and given is not None and _equal(given, self._token):
            redirect = RedirectResponse(page, 303)
            own = quote(self._token, safe="")
            redirect.set_cookie(COOKIE, own, httponly=True, samesite="strict", path=page)
            return redirect
        wanted = (
            "The server needs a token. Open the address once with ?token= and this server's token."
        )
        return _refused(401, wanted, {"WWW-Authenticate": "Bearer"})

    def _is_presented(self, headers: Headers) -> bool:
        token = self._token or ""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(bearer, token):
            return True
        # All cookies count: another server of this host may have set one of the same name.
        pairs = [each.strip() for line in headers.getlist("cookie") for each in line.split(";")]
        return any(_equal(each, f"{COOKIE}={quote(token, safe='')}") for each in pairs)


def require_access(token: object, authenticate: object, rates: object) -> None:
    """Check the rates of an application, and its token or function: at most one of the two."""
    if token is not None and not (isinstance(token, str) and token.strip()):
        raise ValueError(
            "The token is empty. Omit the token, or set a token that is hard to guess."
        )
    if authenticate is not None and not callable(authenticate):
        raise wrong_kind("authenticate=", "a function of the request", authenticate)
    if token is not None and authenticate is not None:
        raise ValueError("Give token= or authenticate=, not both.")
    if not isinstance(rates, RateLimits | None):
        raise wrong_kind("rates=", "RateLimits(requests=…, runs=…)", rates)


def _principal_in(named: object) -> str | None:
    if isinstance(named, str | None):
        return named
    raise wrong_kind(
        "authenticate=", "a function that returns the name of the user as a text, or None", named
    )


def read_hosts(given: Iterable[str]) -> tuple[str, ...]:
    """Return the names of hosts in ``given``; one text is one name."""
    hosts = (given,) if isinstance(given, str) else tuple(given)
    for host in hosts:
        if _HOST.fullmatch(host) is None:
            raise ValueError(
                f"{host!r} is not the name of a host. Write the name alone, without scheme, port and"
                " path, such as chat.example.org."
            )
    return hosts


def _equal(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _token_in_query(request: Request) -> str | None:
    """Remove the token from the query, because servers log addresses, and return it."""
    query = parse_qsl(request.scope["query_string"].decode("latin-1"))
    others = [(name, value) for name, value in query if name != "token"]
    if len(others) < len(query):
        request.scope["query_string"] = urlencode(others).encode()
    return dict(query).get("token")


def _name(header: str) -> str:
    name, colon, port = header.rpartition(":")
    return (name if colon and port.isdecimal() else header).lower()


def _most(scope: Scope) -> int:
    is_run = scope["path"] == scope.get("root_path", "") + RUNS
    return MAX_RUN_BODY if is_run else MAX_BODY


def _too_large(most: int) -> Response:
    return _refused(413, f"The request is larger than {most} bytes.")


def _bounded(receive: Receive, most: int) -> Receive:
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise TooLargeError
        return message

    return bounded


def _refused(status: int, error: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error}, status, headers)
