"""The tools of some targets, loaded again when their source changes.

The author's own modules are loaded again; libraries are not. If the new source fails, the old tools
stay.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from anabranch._terminal import Console, UsageError, failing_as
from anabranch.agents import AgentTool, CalledTool, Outcome, RemoteTools, failed
from anabranch.cli._chat_parts import check_names
from anabranch.cli._targets import Found, load
from anabranch.errors import AnabranchError, ToolError, author_line, format_for_author, is_authors

LOOK = 1_000
"""Milliseconds after which the watch looks for folders that were replaced."""
PATIENCE = 3.0
"""Seconds until the user learns that the code is still loading."""
SLOW = (
    "The code is still loading, and the old tools stay. If loading never ends, correct the code, and"
    " start the command again."
)


class ReloadedTools:
    def __init__(self, targets: Sequence[str], console: Console) -> None:
        self._targets = targets
        self._console = console
        self._libraries = frozenset(sys.modules)
        self._folders = {Path(file).resolve().parent for file in targets if file.endswith(".py")}
        self._remote = RemoteTools()
        self._number = 0
        self._problem = ""
        self._changed = anyio.Event()
        self._found = self._load()
        self._called = _called(self._found)

    def offered_tools(self, taken: Collection[str], /) -> Sequence[AgentTool]:
        own = [tool for tool in self._called if tool.name not in taken]
        return [*own, *self._remote.offered_tools({*taken, *(tool.name for tool in own)})]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        await self._connect(self._found)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await self._remote.aclose()

    async def reload(self) -> None:
        reminder = asyncio.get_running_loop().call_later(PATIENCE, self._console.say, SLOW)
        try:
            found = await anyio.to_thread.run_sync(self._load)
            called = _called(found)
            await self._connect(found)
        except UsageError as error:
            self._problem = _problem_of(error)
            self._console.say(f"Not reloaded; the old tools stay.\n{self._problem}")
        else:
            self._problem, self._called = "", called
            self._console.say("Reloaded.")
        finally:
            reminder.cancel()
        self._number += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    def route(self) -> Route:
        async def serve(request: Request) -> Response:
            del request
            headers = {"Cache-Control": "no-store"}
            return StreamingResponse(self._events(), 200, headers, "text/event-stream")

        return Route("/dev/events", serve, methods=["GET"])

    async def _events(self) -> AsyncIterator[str]:
        while True:
            changed = self._changed
            yield f"data: {json.dumps({'number': self._number, 'problem': self._problem})}\n\n"
            await changed.wait()

    async def _watch(self) -> None:
        # The help of all commands is shown without the extra that has the library.
        from watchfiles import (
            Change,
            PythonFilter,
            awatch,  # pyright: ignore[reportUnknownVariableType] - one of its types is trio's
        )

        places, unseen = self._places(), False
        while True:
            watched = awatch(
                *places,
                watch_filter=PythonFilter(),
                recursive=False,
                rust_timeout=LOOK,
                yield_on_timeout=True,
            )
            async with aclosing(watched):
                async for changes in watched:
                    reloads = unseen or bool(changes)
                    if reloads:
                        await self.reload()
                    before, places = places, self._places()
                    unseen = places != before and not reloads
                    if places != before or any(change is Change.deleted for change, _ in changes):
                        break

    def _places(self) -> dict[Path, int]:
        """Return the folders to watch, each with its inode: a folder may be deleted and made again."""
        places: dict[Path, int] = {}
        for folder in self._folders:
            with suppress(OSError):  # the folder is deleted
                places[folder] = folder.stat().st_ino
        return places

    async def _connect(self, found: Found) -> None:
        remote = RemoteTools(*found.connectable)
        with failing_as(UsageError, ToolError):
            await remote.__aenter__()
        before, self._remote = self._remote, remote
        await before.aclose()

    def _load(self) -> Found:
        before = self._own_modules()
        for name in before:
            del sys.modules[name]
        importlib.invalidate_caches()
        try:
            found = load(self._targets)
            self._own_modules()
        except UsageError:
            for name in self._own_modules():
                del sys.modules[name]
            sys.modules.update(before)
            raise
        return found

    def _own_modules(self) -> dict[str, ModuleType]:
        own: dict[str, ModuleType] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name not in self._libraries and isinstance(file, str) and is_authors(file):
                own[name] = module
                self._folders.add(Path(file).parent)
        return own


def _problem_of(error: UsageError) -> str:
    """Return the lines of the author's code that raised ``error``, or else its sentence."""
    cause = error.__cause__
    has_lines = cause is not None and (author_line(cause) or getattr(cause, "filename", None))
    if cause is None or not has_lines or isinstance(cause, ToolError | SystemExit):
        return str(error)
    return format_for_author(type(cause), cause, cause.__traceback__).rstrip()


def _called(found: Found) -> list[AgentTool]:
    plugged = {id(plugin.mcp) for plugin in found.plugins}
    tools: list[AgentTool] = [CalledTool(tool) for tool in found.tools if id(tool) not in plugged]
    tools += (tool for plugin in found.plugins for tool in plugin.server.tools)
    check_names(tools)
    for tool in tools:
        if isinstance(tool, CalledTool):
            tool.on_error = _shown_to_author
    return tools


def _shown_to_author(tool: str, error: Exception) -> Outcome:
    outcome = failed(tool, error)
    if isinstance(error, AnabranchError) and error.__cause__ is None:
        return outcome  # such an error is for the caller
    lines = format_for_author(type(error), error, error.__traceback__).rstrip()
    return Outcome(f"{outcome.text}\n\n{lines}", is_error=True)
