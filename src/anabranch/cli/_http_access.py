"""The hosts, origins and bearer tokens that requests over HTTP may carry.

DNS rebinding sends a foreign ``Host``, so ``Host`` and ``Origin`` must be known. Each token stands
for a separate caller, to which states, sessions and stored calls are bound.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._health import Health, Watched
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._http_shares import SharedRequests
from anabranch.cli._options import read_tokens
from anabranch.cli._targets import is_fastmcp

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from anabranch.cli._targets import AnyServer

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
