"""What the tools of one server share, whatever the host: how calls are run, kept and swept.

Owns putting the parts together from the options that ``create_server`` and its likes take. It
knows no host.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeAlias

from anabranch._asking.sampling import Sampler
from anabranch._durable.expiry import Reaper
from anabranch._durable.policy import Durability
from anabranch._durable.service import CallService
from anabranch._durable.store import CallStore
from anabranch._engine.clock import Clock, SystemClock
from anabranch._opening import Runtime
from anabranch.limits import Limits
from anabranch.mcp._continue_call import CONTINUE
from anabranch.mcp._protocol import PROTOCOL_ERRORS
from anabranch.mcp._sagas import SagaMethods
from anabranch.mcp._sealing import Sealer
from anabranch.mcp._serving import Service
from anabranch.stores import open_store
from anabranch.tool import Tool

__all__ = ["TTL", "Installation", "Keys", "Store", "named_once"]

Store: TypeAlias = str | CallStore | Durability
"""The URL of a store (``anabranch.stores``), a store, or a store and how it is used."""

Keys: TypeAlias = Sequence[bytes | str]

LEAVING = 5.0
"""Seconds that a server which ends waits for its sweep. What is undone meanwhile goes on."""

TTL = 600.0
"""Seconds that a person has for one round of questions."""


class Installation:
    """The parts that all tools of one server use.

    Args:
        name: the server's; tokens are bound to it.
        keys: at least 32 bytes each; without any, one is made for this process.
        ttl: seconds that a token is good for.
        store: where calls are kept; without one, all state travels with the client.
        sampler: a model of the server's own.
        limits: enclose every call, in addition to each tool's own.
        clock: time for calls, their leases and tokens; the system's by default.
        continue_calls: offer ``continue_call``; needs a store.
    """

    def __init__(
        self,
        name: str,
        *,
        keys: Keys | None,
        ttl: float,
        store: Store | None,
        sampler: Sampler | None,
        limits: Limits | None,
        clock: Clock | None,
        continue_calls: bool,
    ) -> None:
        runtime = Runtime(limits=limits or Limits(), clock=clock or SystemClock())
        self.service: Service = Service(
            CallService(runtime, _durability(store, ttl), PROTOCOL_ERRORS), sampler
        )
        self.sagas: SagaMethods = SagaMethods(
            Sealer(keys or [secrets.token_bytes(32)], audience=name, ttl=ttl, clock=runtime.clock)
        )
        self._tools: dict[str, Tool[Any]] = {}
        self._continue = continue_calls and store is not None
        self._running = 0
        self._sweeping: asyncio.Task[NoReturn] | None = None

    def add(self, *tools: Tool[Any]) -> list[Tool[Any]]:
        """Take ``tools`` in; return those that the host is to offer, ``continue_call`` included."""
        offered = list(tools)
        if self._continue and not self.service.continuing:
            offered.append(CONTINUE)
        for tool in tools:
            self._tools[tool.name] = tool
            self.sagas.offer(tool, self.service)
            if self._continue:
                self.service.continuing[tool.name] = tool
        return offered

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Sweep the store, if there is one, for as long as the server runs.

        It may be entered several times, once for each connection: the last that leaves ends it.
        """
        self._running += 1
        if self._sweeping is None and self.service.calls.durability is not None:
            # No task group: hosts end a lifespan within a cancel scope that they had not begun it in.
            self._sweeping = asyncio.ensure_future(self.reaper().run())
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0 and self._sweeping is not None:
                sweeping, self._sweeping = self._sweeping, None
                sweeping.cancel()
                await asyncio.wait({sweeping}, timeout=LEAVING)

    def reaper(self) -> Reaper:
        """Return what ends the calls that have expired.

        Raises:
            ValueError: there is no store.
        """
        return Reaper(self.service.calls, self._tools)


def named_once(tools: list[Tool[Any]]) -> list[Tool[Any]]:
    """Return ``tools``.

    Raises:
        ValueError: two of them have the same name.
    """
    names = [tool.name for tool in tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Two tools are named {', '.join(repeated)}; give one of them name=")
    return tools


def _durability(store: Store | None, ttl: float) -> Durability | None:
    if store is None or isinstance(store, Durability):
        return store
    opened = open_store(store) if isinstance(store, str) else store
    # A client may answer for as long as its token is good; and then some, for clocks differ.
    return Durability(opened, expire_after=1.5 * ttl)
