"""The canary: checks, before the first call runs, that the engine reads this runtime's waits correctly.

:func:`check_support` runs the waits of ``known_waits.py`` once per process and kind of event loop,
and refuses the runtime if a wait is misread: a round would end too early or never.
"""

from __future__ import annotations

import asyncio
import platform
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from weakref import WeakKeyDictionary

import anyio
import anyio.abc

from anabranch._engine.known_waits import KNOWN_WAITS, Props, begin
from anabranch._engine.survey import Survey
from anabranch._engine.waits import AnyTask
from anabranch.errors import UnsupportedRuntimeError

_PASSES = 20
"""Passes of the loop after which every wait has begun; four are needed."""

_supported: set[type[asyncio.AbstractEventLoop]] = set()
"""The kinds of event loop on which this process has read every wait correctly."""

_checking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
"""For each loop, the lock at which the other calls wait while the first one checks."""


async def check_support() -> None:
    """Raise ``UnsupportedRuntimeError`` if the tasks of this runtime do not show what they wait for.

    The check takes a few milliseconds. If its caller is cancelled, the next caller checks again.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if not hasattr(task, "_fut_waiter"):
        raise UnsupportedRuntimeError(_runtime(None), ["the code runs in no asyncio task"])
    loop = asyncio.get_running_loop()
    if type(loop) in _supported:
        return
    async with _checking.setdefault(loop, asyncio.Lock()):
        if type(loop) not in _supported:
            await _check(loop)
            _supported.add(type(loop))


async def _check(loop: asyncio.AbstractEventLoop) -> None:
    misread: list[str] = []
    graphs: list[str] = []
    async with _props(loop) as props, _running_waits(props) as running:
        for _ in range(_PASSES):
            await asyncio.sleep(0)
        survey = Survey(props.strands, {props.asked})
        for name, (expected, _) in KNOWN_WAITS.items():
            found = survey.state_of(running[name])
            if found is not expected:
                misread.append(
                    f"{name} was read as {found.name.lower()}, not {expected.name.lower()}"
                )
                graphs.append(_call_graph(running[name]))
    if misread:
        error = UnsupportedRuntimeError(_runtime(loop), misread)
        for graph in filter(None, graphs):
            error.add_note(graph)
        raise error


@asynccontextmanager
async def _props(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[Props]:
    """Open the futures, locks, thread and sockets of the waits; close them at the end of the block."""
    gate = threading.Event()
    lock = anyio.Lock()
    lock.acquire_nowait()
    async with AsyncExitStack() as stack:
        near, _, streamed, _ = ends = (*socket.socketpair(), *socket.socketpair())
        for end in ends:
            stack.callback(end.close)
            end.setblocking(False)  # noqa: FBT003 - the standard library's signature
        streamed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # soon full
        stream = await anyio.abc.SocketStream.from_socket(streamed)
        stack.push_async_callback(_shielded, stream.aclose)
        executor = ThreadPoolExecutor(1, thread_name_prefix="anabranch-canary")
        stack.callback(executor.shutdown, wait=False)
        stack.callback(gate.set)
        yield Props(
            asked=loop.create_future(),
            bare=loop.create_future(),
            thread=loop.run_in_executor(executor, gate.wait),
            lock=lock,
            receive=partial(loop.sock_recv, near, 1),
            stream=stream,
            strands=set(),
        )


@asynccontextmanager
async def _running_waits(props: Props) -> AsyncGenerator[dict[str, AnyTask]]:
    """Start a task for every known wait; at the end of the block, cancel and await all tasks."""
    running = {name: begin(wait, props) for name, (_, wait) in KNOWN_WAITS.items()}
    try:
        yield running
    finally:
        tasks = {*running.values(), *props.strands}
        for task in tasks:
            task.cancel()
        await _shielded(asyncio.wait, tasks)


async def _shielded(function: Callable[..., Awaitable[object]], *args: object) -> None:
    # A cancelled scope would cancel the clean-up again and again.
    with anyio.CancelScope(shield=True):
        await function(*args)


def _call_graph(task: AnyTask) -> str:
    """Return asyncio's call graph of ``task``, which helps to mend ``waits.py`` (Python 3.14)."""
    describe: Callable[[AnyTask], str] | None = getattr(asyncio, "format_call_graph", None)
    return describe(task) if describe is not None else ""


def _runtime(loop: asyncio.AbstractEventLoop | None) -> str:
    found = [f"{platform.python_implementation()} {platform.python_version()}"]
    if loop is not None:
        found.append(f"{type(loop).__module__}.{type(loop).__qualname__}")
        with suppress(PackageNotFoundError):  # asyncio's own loop
            package = type(loop).__module__.partition(".")[0]
            found.append(f"{package} {version(package)}")
    return ", ".join([*found, f"anyio {version('anyio')}"])
