"""The hosts and origins that requests over HTTP may carry.

A browser that follows a name to this machine (DNS rebinding) sends that name as ``Host``. So a
request passes only if its ``Host``, and its ``Origin`` if it has one, are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._health import Health, Watched
from anabranch.cli._combined_server import fastmcp_app
from anabranch.cli._http_shares import SharedRequests
from anabranch.cli._http_tokens import authenticated
from anabranch.cli._options import SESSION_TTL
from anabranch.cli._targets import is_fastmcp

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer

ANY: Final = "*"

SESSIONS: Final = 2_000
"""Sessions at the same time, in one process."""

CONCURRENCY: Final = 512
"""Requests that are in progress at the same time, in one process."""

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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """The names and origins that requests may carry, in addition to those of this machine.

    With ``tokens``, requests need one of them, unless the server checks tokens itself.
    """

    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    tokens: tuple[str, ...] = field(default=(), repr=False)

    def settings(self) -> TransportSecuritySettings:
        """Return them as the SDK takes them."""
        names = [*LOOPBACK, *self.hosts]
        own = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
        return TransportSecuritySettings(
            enable_dns_rebinding_protection=ANY not in self.hosts,
            allowed_hosts=_with_ports(names),
            allowed_origins=_with_ports([*own, *self.origins]),
        )

    def app(
        self,
        server: AnyServer,
        host: str,
        *,
        session_ttl: float | None = SESSION_TTL,
        concurrency: int = CONCURRENCY,
        share: int = CONCURRENCY // 2,
    ) -> ASGIApp:
        """Return the application that serves ``server`` to them.

        A session ends after ``session_ttl`` seconds without a request; ``None``: there are none. At
        the same time, ``concurrency`` requests may be in progress, and ``share`` of one caller.
        """
        if is_fastmcp(server):
            app = fastmcp_app(server, self.settings(), session_ttl)
        else:
            app = server.streamable_http_app(
                host=host,
                stateless_http=session_ttl is None,
                session_idle_timeout=session_ttl,
                max_sessions=SESSIONS,
                transport_security=self.settings(),
            )
        is_open = not (self.tokens or checks_tokens(server))
        served: ASGIApp = SharedRequests(_Explained(app), concurrency, share, by_token=not is_open)
        if self.tokens and not checks_tokens(server):
            served = authenticated(served, self.tokens)
        return Watched(served, Health.of(server))


def checks_tokens(server: AnyServer) -> bool:
    """Whether the server's author has given it an authorization of its own."""
    return (server.auth if is_fastmcp(server) else server.settings.auth) is not None


LOCAL: Final = Access()
"""For this machine alone."""


def _with_ports(names: list[str]) -> list[str]:
    return [*names, *(f"{name}:*" for name in names)]


class _Explained:
    """An application whose refusals of a ``Host`` or an ``Origin`` say what to set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
