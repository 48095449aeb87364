"""The access to a server over HTTP: hosts, origins, bearer tokens, and requests in progress.

DNS rebinding sends a foreign ``Host``, so ``Host`` and ``Origin`` must be known. Each token stands
for a separate caller, to which states, sessions and stored calls are bound.

uvicorn's own ``limit_concurrency`` refuses health checks as well, and lets one caller use all
places. A message that answers a server's question, or cancels a call, ends soon, and has a separate
share: calls in progress wait for it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import (
    DEFAULT_MAX_REQUEST_BODY_SIZE,
    TransportSecurityMiddleware,
    TransportSecuritySettings,
)
from starlette.datastructures import Headers
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._aio import ThrottledWarning
from anabranch._budget import Shares, by_address
from anabranch._health import Health, Watched, asks_for_health
from anabranch._text import read_json
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._options import read_tokens
from anabranch.cli._targets import is_fastmcp

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from anabranch.cli._targets import AnyServer

logger: logging.Logger = logging.getLogger("anabranch.cli")

ANY: Final = "*"

SESSIONS: Final = 2_000
"""Maximum sessions at the same time, in one process."""

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")

_REFUSALS: Final = {
    b"Invalid Host header": (
        "The Host header of this request is not allowed. Start the server with --allowed-host NAME,"
        " where NAME is the name by which clients, or the proxy, reach it.\n"
    ),
    b"Invalid Origin header": (
        "The Origin header of this request is not allowed. Start the server with --allowed-origin"
        " ORIGIN, for instance https://app.example.org.\n"
    ),
}


def security_of(endpoint: Endpoint) -> TransportSecuritySettings:
    hosts = endpoint.allowed_host or []
    names = [*LOOPBACK, *hosts]
    own = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=ANY not in hosts,
        allowed_hosts=_with_ports(names),
        allowed_origins=_with_ports([*own, *(endpoint.allowed_origin or [])]),
    )


def app_of(server: AnyServer, endpoint: Endpoint) -> ASGIApp:
    session_ttl, tokens = endpoint.lasting, read_tokens(endpoint.token)
    if is_fastmcp(server):
        app = _fastmcp_app(server, security_of(endpoint), session_ttl)
    else:
        app = server.streamable_http_app(
            host=endpoint.host,
            stateless_http=session_ttl is None,
            session_idle_timeout=session_ttl,
            max_sessions=SESSIONS,
            transport_security=security_of(endpoint),
        )
    checks = checks_tokens(server)
    served: ASGIApp = SharedRequests(
        _Explained(app), endpoint.concurrency, endpoint.share, by_token=bool(tokens) or checks
    )
    if tokens and not checks:
        served = authenticated(served, tokens)
    return Watched(served, Health.of(server))


def checks_tokens(server: AnyServer) -> bool:
    return (server.auth if is_fastmcp(server) else server.settings.auth) is not None


def _with_ports(names: list[str]) -> list[str]:
    return [*names, *(f"{name}:*" for name in names)]


class _Explained:
    """Replaces the SDK's refusal of a ``Host`` or ``Origin`` by one that names the option."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []

        async def explained(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in {403, 421}:
                started.append(message)
                return
            if started:
                start = started.pop()
                text = _REFUSALS.get(message.get("body", b""))
                if text is not None:
                    response = PlainTextResponse(text, status_code=start["status"])
                    await response(scope, receive, send)
                    return
                await send(start)
            await send(message)

        await self._app(scope, receive, explained)


def _fastmcp_app(
    server: FastMCP[Any], security: TransportSecuritySettings, session_ttl: float | None
) -> ASGIApp:
    app = server.http_app(
        path="/mcp",
        stateless_http=session_ttl is None,
        session_idle_timeout=session_ttl,
        host_origin_protection=False,
    )
    guard = TransportSecurityMiddleware(security)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http":
            is_post = scope["method"] == "POST" and scope["path"] == "/mcp"
            refusal = await guard.validate_request(Request(scope), is_post)
        await (refusal or app)(scope, receive, send)

    return serve


class _Tokens:
    def __init__(self, tokens: Iterable[str]) -> None:
        self._known = [_digest(each) for each in tokens]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return a known token's access, or ``None``, in a time independent of the token."""
        given = _digest(token)
        if not any([hmac.compare_digest(given, each) for each in self._known]):  # noqa: C419 - all
            return None
        return AccessToken(token=token, client_id=f"token-{given.hex()[:32]}", scopes=[])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def authenticated(app: ASGIApp, tokens: Iterable[str]) -> ASGIApp:
    guarded = AuthenticationMiddleware(
        AuthContextMiddleware(RequireAuthMiddleware(app, [])),
        backend=BearerAuthBackend(_Tokens(tokens)),
    )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        await (guarded if scope["type"] == "http" else app)(scope, receive, send)

    return serve


AGAIN: Final = {"Retry-After": "1", "Connection": "close"}
"""Headers of a refusal: the client may send the request again after a second, over a new connection."""

ALL: Final = ""


class SharedRequests:
    """ASGI middleware that refuses requests while too many are in progress.

    Health checks always pass. A caller has ``share`` requests, and half as many messages that end
    soon; ``None`` sets no limit. A bearer token or the address identifies the caller.
    """

    def __init__(
        self, app: ASGIApp, most: int, share: int | None = None, *, by_token: bool = False
    ) -> None:
        self._app = app
        self._all = Shares(most)
        self._callers = Shares(share)
        self._soon = Shares(0 if share is None else max(1, share // 2))
        self._by_token = by_token
        self._refused = ThrottledWarning(logger)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or asks_for_health(scope):
            await self._app(scope, receive, send)
            return
        caller = self._caller(scope)
        if self._callers.is_full(caller) or self._all.is_full(ALL):
            await self._beyond(caller, scope, receive, send)
            return
        with self._callers.place(caller), self._all.place(ALL):
            await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> str:
        given = Headers(scope=scope).get("authorization", "") if self._by_token else ""
        return given.partition(" ")[2] or by_address((scope.get("client") or ("",))[0])

    async def _beyond(self, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" or self._soon.is_full(caller):
            await self._refusal(caller)(scope, receive, send)
            return
        with self._soon.place(caller):
            read = await _read(receive) if scope["method"] == "POST" else []
            if read and _begins(b"".join(each.get("body", b"") for each in read)):
                await self._refusal(caller)(scope, receive, send)
                return

            async def replayed() -> Message:
                return read.pop(0) if read else await receive()

            await self._app(scope, replayed, send)

    def _refusal(self, caller: str) -> PlainTextResponse:
        if self._callers.is_full(caller):
            text = f"{self._callers.most} requests of yours are in progress here. Wait for one to end.\n"
            return PlainTextResponse(text, 429, AGAIN)
        self._refused.warn("requests are refused above %d; see --limit-concurrency", self._all.most)
        return PlainTextResponse("Too many requests are in progress here.\n", 503, AGAIN)


async def _read(receive: Receive) -> list[Message]:
    read, size = list[Message](), 0
    while size <= DEFAULT_MAX_REQUEST_BODY_SIZE:
        message = await receive()
        read.append(message)
        size += len(message.get("body", b""))
        if not message.get("more_body", False):
            break
    return read


def _begins(body: bytes) -> bool:
    """Return whether ``body`` may be a JSON-RPC request; an unreadable one counts as such."""
    try:
        message = read_json(body.decode())
    except ValueError:
        return True
    if not isinstance(message, dict):
        return True
    return {"method", "id"} <= cast("dict[str, object]", message).keys()
