"""Examples of waits, each with the strand state that the engine must read; the canary runs all.

Each wait lasts until it is cancelled. The code here stands for an author's, so ``waits.py`` does
not count it as part of the engine. Together, the waits use every name of ``waits.py`` that this
Python and this anyio need. A name without a wait could fail unseen.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import anyio.abc
import anyio.to_thread

from anabranch._engine.survey import StrandState
from anabranch._engine.waits import AnyFuture, AnyTask


@dataclass(frozen=True, slots=True)
class Props:
    """The futures, locks and sockets of the waits; none of them ever completes."""

    asked: AnyFuture
    bare: AnyFuture
    thread: AnyFuture
    lock: anyio.Lock
    receive: Callable[[], Awaitable[bytes]]
    stream: anyio.abc.SocketStream
    strands: set[AnyTask]


Wait: TypeAlias = Callable[[Props], Awaitable[object]]


def begin(wait: Wait, props: Props) -> AnyTask:
    """Start ``wait`` in a new task, without the loop's factory, which could make it a strand."""

    async def waiting() -> None:
        await wait(props)

    return asyncio.Task(waiting(), loop=asyncio.get_running_loop())


async def _task_group(props: Props) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_child(props))


async def _anyio_task_group(props: Props) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_child, props)


async def _child(props: Props) -> None:
    props.strands.update(filter(None, [asyncio.current_task()]))
    await props.asked


def _strand(props: Props) -> AnyTask:
    return begin(_child, props)


async def _anyio_start(_: Props) -> None:
    async with anyio.create_task_group() as group:
        await group.start(_never_started)


async def _never_started(*, task_status: anyio.abc.TaskStatus[None]) -> None:  # noqa: ARG001 - start() passes it
    await anyio.sleep_forever()


async def _completed_by_closure(props: Props) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def complete(_: object) -> None:
        future.cancel()

    _strand(props).add_done_callback(complete)
    await future


async def _completed_by_partial(props: Props) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    _strand(props).add_done_callback(functools.partial(_cancel, future))
    await future


def _cancel(future: AnyFuture, _: object) -> None:
    future.cancel()


async def _asyncio_lock(_: Props) -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    await lock.acquire()


async def _memory_stream(_: Props) -> None:
    sending, receiving = anyio.create_memory_object_stream[None]()
    async with sending, receiving:
        await receiving.receive()


def _full_limiter() -> anyio.CapacityLimiter:
    limiter = anyio.CapacityLimiter(1)
    limiter.acquire_on_behalf_of_nowait(object())
    return limiter


async def _sending(props: Props) -> None:
    while True:
        await props.stream.send(bytes(65536))


async def _generator() -> AsyncGenerator[None]:
    yield
    await asyncio.Event().wait()


async def _async_for(_: Props) -> None:
    [item async for item in _generator()]


async def _anext(_: Props) -> None:
    generator = _generator()
    await anext(generator)
    await anext(generator, None)


async def _aclose(_: Props) -> None:
    async def generate() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await asyncio.Event().wait()

    generator = generate()
    await anext(generator)
    await generator.aclose()


class _Awaitable:
    def __await__(self) -> Generator[Any, Any, Any]:
        return asyncio.Event().wait().__await__()


_BLOCKED: dict[str, Wait] = {
    "an ask": lambda props: props.asked,
    "a task": _strand,
    "asyncio.gather": lambda props: asyncio.gather(props.asked, _strand(props)),
    "asyncio.shield": lambda props: asyncio.shield(props.asked),
    "asyncio.wait": lambda props: asyncio.wait({props.asked, _strand(props)}),
    "asyncio.wait_for": lambda props: asyncio.wait_for(_strand(props), 3600),
    "asyncio.TaskGroup": _task_group,
    "anyio task group": _anyio_task_group,
    "a future completed by a callback's closure": _completed_by_closure,
    "a future completed by a functools.partial": _completed_by_partial,
}

_SYNCHRONISING: dict[str, Wait] = {
    "asyncio.Lock": _asyncio_lock,
    "asyncio.Event": lambda _: asyncio.Event().wait(),
    "asyncio.Queue": lambda _: asyncio.Queue[None]().get(),
    "anyio.Lock": lambda props: props.lock.acquire(),
    "anyio.Semaphore": lambda _: anyio.Semaphore(0).acquire(),
    "anyio.Event": lambda _: anyio.Event().wait(),
    "anyio.CapacityLimiter": lambda _: _full_limiter().acquire(),
    "anyio memory stream": _memory_stream,
    "anyio TaskGroup.start": _anyio_start,
    "an event in async for": _async_for,
    "an event in anext() with a default": _anext,
    "an event in an async generator's aclose()": _aclose,
    "an event in an object's __await__": lambda _: _Awaitable(),
}

_WAITING: dict[str, Wait] = {
    "a bare future": lambda props: props.bare,
    "asyncio.gather of an ask and a bare future": lambda props: asyncio.gather(
        props.asked, props.bare
    ),
    "asyncio.wait for an ask or a bare future": lambda props: asyncio.wait(
        {props.asked, props.bare}, return_when=asyncio.FIRST_COMPLETED
    ),
}

_BUSY: dict[str, Wait] = {
    "a thread": lambda props: props.thread,
    "asyncio.shield of a thread": lambda props: asyncio.shield(props.thread),
    "asyncio.sleep": lambda _: asyncio.sleep(3600),
    "a socket": lambda props: props.receive(),
    "an anyio socket that receives": lambda props: props.stream.receive(),
    "an anyio socket that sends": _sending,
    "a thread for which anyio.to_thread has no place": lambda _: anyio.to_thread.run_sync(
        int, limiter=_full_limiter()
    ),
}

KNOWN_WAITS: dict[str, tuple[StrandState, Wait]] = {
    name: (state, wait)
    for state, waits in {
        StrandState.BLOCKED: _BLOCKED,
        StrandState.SYNCHRONISING: _SYNCHRONISING,
        StrandState.WAITING: _WAITING,
        StrandState.BUSY: _BUSY,
    }.items()
    for name, wait in waits.items()
}
"""For each wait, by its name in errors: the state to be read, and the function that starts it."""
