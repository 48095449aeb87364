"""The installation of tools in one server of any host: it runs, expires and ends their calls.

Running calls are undone before a signal ends the process. Only signals without a handler are
watched: a host that stops by itself (uvicorn) is left alone. Over stdio, no cancellation reaches
the thread that reads stdin.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, NoReturn

from anabranch._aio import SystemClock, run_shielded
from anabranch._budget import Limits
from anabranch._durable import ASKS, HANDLES, CallService, Reaper
from anabranch._health import Health, OffersRoutes
from anabranch.mcp._ask_page import AskLinks
from anabranch.mcp._continue_tools import ContinueTool, answer_questions, continue_call
from anabranch.mcp._options import ServerOptions, durability_of, sealer_of
from anabranch.mcp._protocol import PROTOCOL_ERRORS
from anabranch.mcp._service import Handles, Service
from anabranch.tool import Runtime, Tool, code_version

LEAVING = 5.0
"""Seconds that a stopping server waits for its reaper. Running compensations continue."""


class Installation:
    """A group of tools that :func:`install` or :func:`install_fastmcp` added to a server.

    Args:
        tools: the tools.
        options: the options of the tools.
        audience: the server's name, for which sealed states and handles are valid.

    Raises:
        ValueError: if two of the tools have the same name, ``patience`` is not positive, or a key
            is too short.
        StoreError: if the store's URL is invalid.
    """

    def __init__(self, tools: Sequence[Tool[Any]], options: ServerOptions, audience: str) -> None:
        runtime = Runtime(
            limits=options.limits or Limits(),
            patience=options.patience,
            clock=options.clock or SystemClock(),
            step_threads=options.step_threads,
            version="" if options.store is None else code_version(tools, options.code_version),
        )
        calls = CallService(
            runtime, durability_of(options), PROTOCOL_ERRORS, options.max_state, options.max_running
        )
        sealer = sealer_of(options, audience, HANDLES)
        self.service: Service = Service(
            calls=calls,
            handles=Handles(calls, {tool.name: tool for tool in tools}, sealer),
            sampler=options.sampler,
            prefer_client=options.sampler_mode == "prefer-client",
            heartbeat=options.heartbeat,
            continues=options.continue_calls and options.store is not None,
            asks_by_result=options.ask == "fallback",
            links=_links(calls, options, audience),
            on_call=self._expire,
            max_request=options.max_request,
        )
        self.tools: Sequence[Tool[Any]] = tools
        self.continue_tools: list[ContinueTool] = []
        if self.service.continues:
            self.continue_tools.append(continue_call(self.service))
        if self.service.asks_by_result:
            self.continue_tools.append(answer_questions(self.service))
        self._running = 0
        self._grace = options.grace
        self._reaping: asyncio.Task[NoReturn] | None = None
        names = self.names
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"Two tools are named {', '.join(repeated)}; give one of them name=")

    @property
    def names(self) -> list[str]:
        """The names of all tools that the server must offer, including ``continue_call``."""
        return [*(tool.name for tool in self.tools), *(tool.name for tool in self.continue_tools)]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Expire stored calls while the block runs, and end running calls at its end.

        Ending a call runs its undos. A server may enter the block several times, once for each
        connection; the last exit ends the calls. A server that never enters the block expires calls
        after its first call, until its event loop ends.
        """
        self._running += 1
        self._expire()
        try:
            with before_termination(self._end_calls):
                yield
        finally:
            self._running -= 1
            if self._running == 0:
                await run_shielded(self._stop())

    async def _stop(self) -> None:
        reaping, self._reaping = self._reaping, None
        if reaping is not None:
            reaping.cancel()
        await self._end_calls()
        if reaping is not None:
            await asyncio.wait({reaping}, timeout=LEAVING)

    async def _end_calls(self) -> None:
        await self.service.calls.running.end(self._grace)

    def _expire(self) -> None:
        """Start to expire calls, unless this loop already does, or there is no store."""
        if self.service.calls.durability is None:
            return
        if self._reaping is None or self._reaping.get_loop() is not asyncio.get_running_loop():
            reaper = Reaper(self.service.calls, {tool.name: tool for tool in self.tools})
            # No task group: a host may leave a lifespan in another cancel scope than it entered.
            self._reaping = asyncio.ensure_future(reaper.run())


def offer_routes(installation: Installation, server: OffersRoutes) -> None:
    """Add the routes for the server's health and, if it has pages of questions, for those pages."""
    service = installation.service
    durability = service.calls.durability
    Health.of(server, *([] if durability is None else [partial(durability.store.find, "")]))
    if service.links is not None:
        service.links.offer(server)


def _links(calls: CallService, options: ServerOptions, audience: str) -> AskLinks | None:
    if options.ask_url is None or calls.durability is None:
        return None
    sealer = sealer_of(options, audience, ASKS)
    return AskLinks(options.ask_url, calls, calls.durability, sealer)


def require_server(server: object, kind: type) -> None:
    """Raise a ``TypeError`` that names the right function unless ``server`` is of ``kind``."""
    if isinstance(server, kind):
        return
    use = {
        "fastmcp": "For a FastMCP server, use anabranch.mcp.install_fastmcp(server, tool, …).",
        "mcp.server.mcpserver": "For an MCPServer, use anabranch.mcp.install(server, tool, …).",
        "mcp.server.lowlevel": "The SDK's low-level Server has no public way to add tools to those"
        " that it has: use anabranch.mcp.create_server(name, tools), or an MCPServer.",
    }
    home = type(server).__module__
    hint = next((use[package] for package in use if f"{home}.".startswith(f"{package}.")), None)
    instead = hint or "Give an MCPServer to install(), or a FastMCP server to install_fastmcp()."
    raise TypeError(f"Tools cannot be added here to {type(server).__name__}. {instead}")


Act = Callable[[], Coroutine[Any, Any, None]]


@contextmanager
def before_termination(act: Act) -> Generator[None]:
    """Await ``act`` if a signal comes in the block; then, or at a second signal, end the process."""
    loop = asyncio.get_running_loop()
    watch = _WATCHES.get(loop) or _Watch(loop)
    watch.acts.append(act)
    try:
        yield
    finally:
        watch.acts.remove(act)
        if not watch.acts:
            watch.close()


class _Watch:
    """The signals that one event loop watches, and the actions to await before the process ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.acts: list[Act] = []
        self._loop = loop
        self._numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if self._take(each)]
        self._ending: asyncio.Task[None] | None = None
        _WATCHES[loop] = self

    def close(self) -> None:
        del _WATCHES[self._loop]
        self._release()

    def _take(self, number: signal.Signals) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(number) is not signal.SIG_DFL:
            return False
        with suppress(NotImplementedError):  # event loops on Windows
            self._loop.add_signal_handler(number, self._begin, number)
            return True
        return False

    def _release(self) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._numbers = []

    def _begin(self, number: signal.Signals) -> None:
        self._release()
        self._ending = self._loop.create_task(self._end(number))

    async def _end(self, number: signal.Signals) -> None:
        await asyncio.gather(*(act() for act in self.acts), return_exceptions=True)
        signal.raise_signal(number)


_WATCHES: dict[asyncio.AbstractEventLoop, _Watch] = {}
