"""Reads the waits of suspended tasks from the private state of asyncio and from their frames.

``asyncio.capture_call_graph`` (Python 3.14) only tells which tasks await a known future. A wait for an
ask and for something unknown looks there like a wait for the ask alone. Its call stacks also end at
the first async generator (python/cpython#156980). So every Python is read in the same way. Where the
state is missing, each function returns an empty result, and the canary refuses the runtime.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
from collections import deque
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, TypeAlias, cast

AnyFuture: TypeAlias = "asyncio.Future[Any]"
AnyTask: TypeAlias = "asyncio.Task[Any]"


def waiter_of(task: AnyTask) -> AnyFuture | None:
    """Return the future that wakes ``task``, or ``None`` if the task is about to run."""
    return getattr(task, "_fut_waiter", None)


def children_of(future: AnyFuture) -> Iterable[AnyFuture]:
    """Return the futures that ``future`` gathers if ``asyncio.gather`` made it, else nothing."""
    return getattr(future, "_children", ())


def shielded_by(future: AnyFuture) -> list[AnyFuture]:
    """Return the future that ``future`` shields if ``asyncio.shield`` made it, else nothing."""
    for callback, _ in _callbacks_of(future):
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            return list(_held_by(callback))
    return []


def relays(sources: Iterable[AnyFuture]) -> dict[AnyFuture, AnyFuture]:
    """Return the futures that a done callback of another future may complete, each with that other.

    The search starts at ``sources``, and continues at each future that it finds.
    """
    found: dict[AnyFuture, AnyFuture] = {}
    known = set(sources)
    todo = deque(known)
    while todo:
        source = todo.popleft()
        for callback, _ in _callbacks_of(source):
            for held in _held_by(callback):
                if held not in known:
                    known.add(held)
                    found[held] = source
                    todo.append(held)
    return found


def is_bare(future: AnyFuture) -> bool:
    """Whether ``future`` shows no sign of a thread or a library that will complete it."""
    if type(future) is not asyncio.Future:
        return False
    return not any(
        getattr(callback, "__module__", None) == "asyncio.futures"  # chained to a thread's future
        for callback, _ in _callbacks_of(future)
    )


def _held_by(callback: object) -> Iterator[AnyFuture]:
    if isinstance(callback, functools.partial):
        yield from filter(asyncio.isfuture, callback.args)
        return
    for cell in getattr(callback, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if asyncio.isfuture(held):
            yield held


def _callbacks_of(future: AnyFuture) -> Iterable[tuple[object, object]]:
    return getattr(future, "_callbacks", None) or ()


_ANYIO_BACKEND = "anyio._backends._asyncio"

_WRAPPERS = {
    "anext_awaitable",
    "async_generator_asend",
    "async_generator_athrow",
    "coroutine_wrapper",
}
"""Awaitables written in C, which show the awaited object only to the garbage collector."""

_WAIT_FUNCTIONS = {"_wait", "wait_for"}  # a future of its own is awaited by the latter in 3.11
"""Functions of ``asyncio.tasks`` whose ``fs`` or ``fut`` holds the awaited futures."""

_GROUP_EXITS = {
    ("asyncio.taskgroups", "__aexit__"),
    ("asyncio.taskgroups", "_aexit"),  # since Python 3.13.1
    (_ANYIO_BACKEND, "__aexit__"),
}
"""Functions in which a task group waits for its children, which its ``_tasks`` holds."""

_PRIMITIVES = {"asyncio.locks", "asyncio.queues"}
"""Modules in which a task waits for another task of this process."""

_ANYIO_PRIMITIVES = {"acquire", "start"}
"""Functions of anyio's backend in which a task waits for another task of this process."""

_ANYIO_DEVICES = {"receive", "run_sync_in_worker_thread", "send"}
"""Functions of anyio's backend that use a primitive to wait for a socket or a thread."""

_ASYNC_LIBRARIES = {"anyio", "asyncio"}

_AUTHORS_CODE = "anabranch._engine.known_waits"
"""The module whose waits stand for an author's."""

_IO_LIBRARIES = {
    "aio_pika", "aiobotocore", "aiohttp", "aiokafka", "aiomysql", "aiormq", "aiosqlite",
    "asyncpg", "asyncssh", "grpc", "h11", "h2", "httpcore", "httpcore2", "httpx", "httpx2", "mcp",
    "motor", "nats", "psycopg", "psycopg_pool", "pymongo", "redis", "sqlalchemy", "urllib3",
    "uvloop", "websockets", "zmq",
}  # fmt: skip
"""Libraries whose locks and futures stand for a device. A missing library costs a round."""


def frames_of(task: AnyTask) -> list[FrameType]:
    """Return the frames of the coroutines that ``task`` runs and awaits, outermost first."""
    frames: list[FrameType] = []
    current: object = task.get_coro()
    while current is not None:
        for prefix, awaits in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = getattr(current, f"{prefix}_frame", None)
            if frame is not None:
                frames.append(frame)
                current = getattr(current, awaits, None)
                break
        else:
            current = _wrapped(current)
    return frames


def _wrapped(awaitable: object) -> object:
    if type(awaitable).__name__ in _WRAPPERS:
        for held in cast("list[object]", gc.get_referents(awaitable)):
            if (
                type(held).__name__ in _WRAPPERS
                or inspect.iscoroutine(held)
                or inspect.isasyncgen(held)
            ):
                return held
    return None


def waited_for(frames: list[FrameType]) -> list[AnyFuture]:
    """Return the futures for which the innermost frame waits, if that wait is a known one."""
    if not frames:
        return []
    frame = frames[-1]
    module, name, local = _module(frame), frame.f_code.co_name, frame.f_locals
    found: object = None
    if module == "asyncio.tasks" and name in _WAIT_FUNCTIONS:
        found = local.get("fs", local.get("fut"))
    elif (module, name) in _GROUP_EXITS:
        found = getattr(local.get("self"), "_tasks", None)
    if asyncio.isfuture(found):
        return [found]
    if isinstance(found, set | frozenset | list | tuple):
        return [one for one in cast("Iterable[object]", found) if asyncio.isfuture(one)]
    return []


def is_in_library(frames: list[FrameType]) -> bool:
    """Whether the innermost frame is a library's, or no frame can be seen."""
    return not frames or _is_library(frames[-1])


def is_synchronising(frames: list[FrameType]) -> bool:
    """Whether the author's code, and not the inner work of a library, waits at a primitive."""
    if not frames or not _is_primitive(frames[-1]):
        return False
    for frame in reversed(frames):
        module = _module(frame)
        if module == _ANYIO_BACKEND and frame.f_code.co_name in _ANYIO_DEVICES:
            return False
        if module.partition(".")[0] not in _ASYNC_LIBRARIES:
            return not _is_library(frame)
    return True  # the task runs nothing else: create_task(event.wait())


def place_of(frames: list[FrameType]) -> str:
    """Return the file and line of the author's innermost frame, or of the innermost of all."""
    if not frames:
        return "code that shows no frame"
    authors = [
        frame
        for frame in frames
        if not _is_library(frame) and not _module(frame).startswith("anabranch.")
    ]
    frame = (authors or frames)[-1]
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_library(frame: FrameType) -> bool:
    """Whether the code in ``frame`` waits for devices, or drives a call inside this call."""
    module = _module(frame)
    package = module.partition(".")[0]
    return (
        package in _ASYNC_LIBRARIES
        or package in _IO_LIBRARIES
        or (module.startswith("anabranch._engine.") and module != _AUTHORS_CODE)
    )


def _is_primitive(frame: FrameType) -> bool:
    module = _module(frame)
    if module == _ANYIO_BACKEND:
        return frame.f_code.co_name in _ANYIO_PRIMITIVES
    return module in _PRIMITIVES
