"""``/healthz`` and ``/readyz``: whether a server is alive, and whether it can take requests.

Anyone may ask, under any ``Host``. The replies reveal nothing else about the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.errors import StoreError

logger: logging.Logger = logging.getLogger("anabranch.health")

ALIVE = "/healthz"
READY = "/readyz"

PATIENCE = 2.0
"""Maximum seconds until the stores must answer."""

Check = Callable[[], Awaitable[object]]
"""Reads from a store, which connects and makes its tables; raises :class:`StoreError`."""


class OffersRoutes(Protocol):
    def custom_route(
        self, path: str, methods: list[str], /
    ) -> Callable[[Callable[[Request], Awaitable[Response]]], object]: ...


class Health:
    """The health of one server, and its replies; ``stopping`` once it takes no more requests."""

    def __init__(self, *checks: Check, patience: float = PATIENCE) -> None:
        self.stopping: bool = False
        self._checks = list(checks)
        self._patience = patience
        self._checking: asyncio.Future[Any] | None = None
        self._problem = ""

    @classmethod
    def of(cls, server: OffersRoutes, *checks: Check) -> Health:
        health = _OF_SERVERS.get(server)
        if health is None:
            health = _OF_SERVERS[server] = cls()
            for path in (ALIVE, READY):
                server.custom_route(path, ["GET"])(health.answer)
        health._checks += checks
        return health

    async def answer(self, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return JSONResponse({"error": "Use GET."}, 405, {"Allow": "GET"})
        if _path(request.scope) == ALIVE:
            return JSONResponse({"status": "alive"})
        problem = "stopping" if self.stopping else await self._unreachable()
        return JSONResponse({"status": problem or "ready"}, 503 if problem else 200)

    async def _unreachable(self) -> str:
        """Return the problem of the stores, or "". One check runs at a time, for all requests."""
        if self._checking is None:
            self._checking = asyncio.gather(*(check() for check in self._checks))
            self._checking.add_done_callback(self._checked)
        done, _ = await asyncio.wait({self._checking}, timeout=self._patience)
        if not done:
            self._report(f"no answer within {self._patience:g} s")
        return "store unreachable" if self._problem else ""

    def _checked(self, checking: asyncio.Future[Any]) -> None:
        self._checking = None
        if checking.cancelled():  # the loop of the check has ended
            return
        error = checking.exception()
        if isinstance(error, StoreError) or error is None:
            self._report("" if error is None else str(error))
        else:
            logger.error("a store could not be checked", exc_info=error)
            self._problem = "failed"

    def _report(self, problem: str) -> None:
        if problem and not self._problem:
            logger.warning("not ready: %s", problem)
        elif self._problem and not problem:
            logger.warning("ready again")
        self._problem = problem


_OF_SERVERS: WeakKeyDictionary[OffersRoutes, Health] = WeakKeyDictionary()


class Watched:
    """ASGI middleware that answers requests for ``/healthz`` and ``/readyz`` itself."""

    def __init__(self, app: ASGIApp, health: Health) -> None:
        self._app = app
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if asks_for_health(scope):
            response = await self._health.answer(Request(scope))
            await response(scope, receive, send)
            return

        async def watched() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self._health.stopping = True
            return message

        await self._app(scope, watched if scope["type"] == "lifespan" else receive, send)


def asks_for_health(scope: Scope) -> bool:
    return scope["type"] == "http" and _path(scope) in {ALIVE, READY}


def _path(scope: Scope) -> str:
    """Return the path of a request, relative to the mount point of the application."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
