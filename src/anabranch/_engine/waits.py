"""What a task waits for, as far as asyncio and anyio show it.

Owns the reading of their inner state, and no judgement: ``quiescence.py`` draws conclusions.
Nothing here changes anything.

asyncio has no public answer to "what does this task wait for". ``Task._fut_waiter``,
``Future._callbacks``, ``_GatheringFuture._children`` and the frames of coroutines are used, as
debuggers do; the tests run every scenario on each supported Python, so that a change there is
noticed by them and not by users. Tasks that lack them are refused when a call starts
(``quiescence.check_support``).
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

__all__ = [
    "AnyFuture",
    "AnyTask",
    "children_of",
    "frames_of",
    "is_bare",
    "is_in_library",
    "is_synchronising",
    "relays",
    "shielded_by",
    "waited_for",
    "waiter_of",
]

AnyFuture: TypeAlias = "asyncio.Future[Any]"
AnyTask: TypeAlias = "asyncio.Task[Any]"


def waiter_of(task: AnyTask) -> AnyFuture | None:
    """Return the future that wakes ``task``, ``None`` if it is about to run."""
    return getattr(task, "_fut_waiter", None)


def children_of(future: AnyFuture) -> Iterable[AnyFuture]:
    """Return what asyncio.gather has gathered in ``future``; nothing if it is none of gather's."""
    return getattr(future, "_children", ())


def waited_for(frames: list[FrameType]) -> list[AnyFuture]:
    """Return the futures that asyncio or anyio waits for in the innermost frame, if it does."""
    if not frames:
        return []
    frame = frames[-1]
    module, name, local = _module(frame), frame.f_code.co_name, frame.f_locals
    found: object = None
    if module == "asyncio.tasks" and name in {"_wait", "wait_for"}:
        found = local.get("fs", local.get("fut"))
    elif name in {"__aexit__", "_aexit"} and module in {
        "asyncio.taskgroups",
        "anyio._backends._asyncio",
    }:
        found = getattr(local.get("self"), "_tasks", None)
    if asyncio.isfuture(found):
        return [found]
    if isinstance(found, set | frozenset | list | tuple):
        return [one for one in cast("Iterable[object]", found) if asyncio.isfuture(one)]
    return []


def frames_of(task: AnyTask) -> list[FrameType]:
    """Return the frames of what ``task`` runs and awaits, outermost first."""
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
            current = _hidden(current)
    return frames


_WRAPPERS = {
    "anext_awaitable",
    "async_generator_asend",
    "async_generator_athrow",
    "coroutine_wrapper",
}
"""Awaitables written in C, which do not show what they run."""


def _hidden(awaitable: object) -> object:
    if type(awaitable).__name__ in _WRAPPERS:
        for held in cast("list[object]", gc.get_referents(awaitable)):
            if (
                type(held).__name__ in _WRAPPERS
                or inspect.iscoroutine(held)
                or inspect.isasyncgen(held)
            ):
                return held
    return None


_PRIMITIVES = {
    "anyio._core._synchronization",
    "anyio.streams.memory",
    "asyncio.locks",
    "asyncio.queues",
}
"""Modules that wait for somebody else in this process."""
_ANYIO_DEVICES = {
    "accept", "receive", "receive_fds", "run_sync_in_worker_thread", "send", "send_fds",
}  # fmt: skip
"""Where anyio's backend uses the same primitives to wait for a socket or a thread."""
_ASYNC_LIBRARIES = {"asyncio", "anyio"}
_IO_LIBRARIES = {
    "aio_pika", "aiobotocore", "aiohttp", "aiokafka", "aiomysql", "aiormq", "aiosqlite",
    "asyncpg", "asyncssh", "grpc", "h11", "h2", "httpcore", "httpcore2", "httpx", "httpx2", "mcp",
    "motor", "nats", "psycopg", "psycopg_pool", "pymongo", "redis", "sqlalchemy", "urllib3",
    "uvloop", "websockets", "zmq",
}  # fmt: skip
"""Libraries whose locks and futures stand for a device. One that is missing here only costs."""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_library(frame: FrameType) -> bool:
    """Whether what runs in ``frame`` is known to wait for devices. A call inside a call is."""
    module = _module(frame)
    package = module.partition(".")[0]
    return (
        package in _ASYNC_LIBRARIES
        or package in _IO_LIBRARIES
        or module.startswith("anabranch._engine.")
    )


def is_in_library(frames: list[FrameType]) -> bool:
    """Whether the innermost frame is a library's; also where no frame can be seen."""
    return not frames or _is_library(frames[-1])


def is_synchronising(frames: list[FrameType]) -> bool:
    """Whether the author's code waits at a lock or the like, and no library for its own ends."""
    if not frames or not _is_primitive(frames[-1]):
        return False
    for frame in reversed(frames):
        module = _module(frame)
        if module == "anyio._backends._asyncio" and frame.f_code.co_name in _ANYIO_DEVICES:
            return False
        if module.partition(".")[0] not in _ASYNC_LIBRARIES:
            return not _is_library(frame)
    return True  # a task of nothing else: create_task(event.wait())


def _is_primitive(frame: FrameType) -> bool:
    module = _module(frame)
    if module == "anyio._backends._asyncio":
        return frame.f_code.co_name in {"acquire", "acquire_on_behalf_of", "start", "wait"}
    return module in _PRIMITIVES


def relays(sources: Iterable[AnyFuture]) -> dict[AnyFuture, AnyFuture]:
    """Map each future that the end of another one completes to that other one.

    asyncio.shield and its like do it in a callback, whose closure holds the future.
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


def shielded_by(future: AnyFuture) -> list[AnyFuture]:
    """Return what asyncio.shield shields in ``future``; nothing if it is none of shield's."""
    for callback, _ in _callbacks_of(future):
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            return list(_held_by(callback))
    return []


def is_bare(future: AnyFuture) -> bool:
    """Whether ``future`` shows no sign of a thread or a library that will complete it."""
    if type(future) is not asyncio.Future:
        return False
    return not any(
        getattr(callback, "__module__", None) == "asyncio.futures"  # it is tied to a thread's
        for callback, _ in _callbacks_of(future)
    )


def _callbacks_of(future: AnyFuture) -> Iterable[tuple[object, object]]:
    return getattr(future, "_callbacks", None) or ()
