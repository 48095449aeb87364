"""When a round ends and when it continues, for one kind of wait at a time."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio
import anyio.to_thread
import pytest

from anabranch._engine import Answer, Branch, quiescence
from tests.engine.harness import World, ask, ask_here, first_round, rounds, step
from tests.patience import PATIENCE
from tests.sockets import listening

LONGER_THAN_SETTLING = 0.08


async def brackets(body: Callable[[Branch], Coroutine[Any, Any, Any]]) -> list[list[str]]:
    async with asyncio.timeout(PATIENCE):
        return [sorted(asked) for asked in (await rounds(body)).brackets]


async def brackets_next_to_an_ask(wait: Callable[[], Awaitable[object]]) -> list[list[str]]:
    """Run two strands: one asks ``a``; the other waits, then asks ``b``. Return the questions of each round."""

    async def waiting() -> None:
        await wait()
        await ask("b")

    async def body(_: Branch) -> None:
        await asyncio.gather(ask("a"), waiting())

    return await brackets(body)


async def test_a_round_that_ends_immediately_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    set_for: list[float] = []

    def no_timer(delay: float, *_: object, **__: object) -> None:
        set_for.append(delay)

    async def body(_: Branch) -> object:
        return await ask("a")

    await first_round(body)  # the first call in a process checks the runtime
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", no_timer)
    journal = await first_round(body)
    assert (len(journal.pending), set_for) == (1, [])


# -- devices, for which a round waits -----------------------------------------------------------


def work() -> None:
    threading.Event().wait(LONGER_THAN_SETTLING)


def later() -> asyncio.Future[None]:
    """Return a bare future that a timer completes."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.call_later(LONGER_THAN_SETTLING, future.set_result, None)
    return future


class DeviceFuture(asyncio.Future[None]):
    """A future type as libraries for devices define it."""


def device() -> asyncio.Future[None]:
    future = DeviceFuture()
    asyncio.get_running_loop().call_later(LONGER_THAN_SETTLING, future.set_result, None)
    return future


async def first_of_a_device_and_a_question() -> None:
    question = asyncio.create_task(ask_here("never"))
    await asyncio.wait({question, device()}, return_when=asyncio.FIRST_COMPLETED)
    question.cancel()


async def a_call_inside() -> None:
    """Run a call inside the call; the answer to the inner call takes a while."""

    async def inner(_: Branch) -> Any:
        return await ask("inner")

    world = World()
    async with world.call(inner, world.journal()) as call:
        await call.drive(slowly)


async def slowly(_: object) -> Answer:
    await asyncio.sleep(LONGER_THAN_SETTLING)
    return Answer("yes")


DEVICES: dict[str, Callable[[], Awaitable[object]]] = {
    "sleep": lambda: asyncio.sleep(LONGER_THAN_SETTLING),
    "a library's own future": device,
    "gather over it": lambda: asyncio.gather(device()),
    "shield over it": lambda: asyncio.shield(device()),
    "wait for it or a question": first_of_a_device_and_a_question,
    "a thread in gather": lambda: asyncio.gather(
        asyncio.get_running_loop().run_in_executor(None, work)
    ),
    "a call inside the call": a_call_inside,
    "a step": lambda: step(asyncio.sleep, LONGER_THAN_SETTLING),
}


@pytest.mark.parametrize("name", DEVICES)
async def test_a_round_waits_for_a_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiescence, "UNSEEN", 0.0)
    assert (await brackets_next_to_an_ask(DEVICES[name]))[0][:2] == ["a", "b"]


async def test_a_round_waits_for_threads_that_queue_for_a_limiter() -> None:
    limiter = anyio.CapacityLimiter(1)

    async def working(question: str) -> None:
        await anyio.to_thread.run_sync(work, limiter=limiter)
        await ask(question)

    async def body(_: Branch) -> None:
        await asyncio.gather(ask("a"), working("b"), working("c"))

    assert await brackets(body) == [["a", "b", "c"]]


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    """Run a server that answers late."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        await asyncio.sleep(LONGER_THAN_SETTLING)
        writer.write(b"!")
        await reader.read()

    async with listening(serve) as port:
        yield port


async def test_an_anyio_socket_is_a_device_although_it_waits_at_an_event(port: int) -> None:
    async def fetching() -> None:
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"?")
            assert await stream.receive() == b"!"

    assert await brackets_next_to_an_ask(fetching) == [["a", "b"]]


# -- other strands: a round does not wait for blocked strands ------------------------------------


def opened_by(opener: Callable[[], object], waiter: Callable[[], Awaitable[object]]) -> Any:
    """Return a body in which one strand, after a question, opens the wait of another."""

    async def first() -> None:
        await ask("a")
        result = opener()
        if asyncio.iscoroutine(result):
            await result

    async def second() -> None:
        await waiter()
        await ask("b")

    async def body(_: Branch) -> None:
        await asyncio.gather(first(), second())

    return body


def condition() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    waiting = asyncio.Condition()
    notified: list[bool] = []  # a replay may notify before the other strand waits

    async def notify() -> None:
        async with waiting:
            notified.append(True)
            waiting.notify_all()

    async def wait() -> None:
        async with waiting:
            await waiting.wait_for(lambda: notified)

    return notify, wait


def semaphore() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    free = asyncio.Semaphore(0)
    return free.release, free.acquire


def anyio_semaphore() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    free = anyio.Semaphore(0)
    return free.release, free.acquire


def barrier() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    both = asyncio.Barrier(2)
    return both.wait, both.wait


def anyio_event() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    event = anyio.Event()
    return event.set, event.wait


def limiter() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    free = anyio.CapacityLimiter(1)
    other = object()
    free.acquire_on_behalf_of_nowait(other)
    return functools.partial(free.release_on_behalf_of, other), free.acquire


def by_callback() -> tuple[Callable[[], object], Callable[[], Awaitable[object]]]:
    """Return a future's wait, and an opener whose task completes the future in a callback."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    started = asyncio.Event()

    def done(future: asyncio.Future[None], task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            future.set_result(None)

    async def wait() -> None:
        task = asyncio.create_task(started.wait())
        task.add_done_callback(functools.partial(done, future))
        await future

    return started.set, wait


BETWEEN: list[Callable[[], tuple[Callable[[], object], Callable[[], Awaitable[object]]]]] = [
    condition, semaphore, anyio_semaphore, barrier, anyio_event, limiter, by_callback,
]  # fmt: skip


@pytest.mark.parametrize("between", BETWEEN)
async def test_a_round_ends_when_one_strand_waits_for_another_that_asks(
    between: Callable[[], tuple[Callable[[], object], Callable[[], Awaitable[object]]]],
) -> None:
    async def body(root: Branch) -> None:
        await opened_by(*between())(root)

    assert await brackets(body) == [["a"], ["b"]]


def bare(future: asyncio.Future[None]) -> asyncio.Future[None]:
    return future


def waited_for(future: asyncio.Future[None]) -> Awaitable[object]:
    return asyncio.wait_for(future, PATIENCE)


def waited(future: asyncio.Future[None]) -> Awaitable[object]:
    return asyncio.wait({future})


def gathered(future: asyncio.Future[None]) -> Awaitable[object]:
    return asyncio.gather(future)


def shielded(future: asyncio.Future[None]) -> Awaitable[object]:
    return asyncio.shield(future)


@pytest.mark.parametrize("wrap", [bare, waited_for, waited, gathered, shielded])
async def test_a_round_stops_waiting_for_a_bare_future(
    wrap: Callable[[asyncio.Future[None]], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine cannot see what completes the future. Another round is better than a hang."""
    monkeypatch.setattr(quiescence, "UNSEEN", 0.02)

    async def body(root: Branch) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await opened_by(lambda: future.set_result(None), lambda: wrap(future))(root)

    assert await brackets(body) == [["a"], ["b"]]


async def test_a_round_waits_a_while_for_a_bare_future_to_be_completed() -> None:
    assert await brackets_next_to_an_ask(later) == [["a", "b"]]


async def test_a_question_withdrawn_by_a_timer_while_the_round_settles_is_not_asked() -> None:
    event = asyncio.Event()

    async def impatient() -> None:
        try:
            async with asyncio.timeout(0.01):
                await ask("a")
        except TimeoutError:
            await asyncio.sleep(LONGER_THAN_SETTLING)
            await ask("b")
            event.set()

    async def body(_: Branch) -> None:
        await asyncio.gather(impatient(), event.wait())

    assert await brackets(body) == [["b"]]


async def test_a_timer_that_no_event_reports_does_not_end_a_round_early() -> None:
    """The strand that waits at the event continues while the round settles."""
    event = asyncio.Event()

    async def impatient() -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.gather(asyncio.shield(asyncio.create_task(event.wait())))
        except TimeoutError:
            await asyncio.sleep(LONGER_THAN_SETTLING)
            await ask("b")
            event.set()

    async def body(_: Branch) -> None:
        await asyncio.gather(impatient(), ask("a"))

    assert await brackets(body) == [["a", "b"]]


async def test_a_callback_may_close_over_any_value_or_an_unset_variable() -> None:
    """The engine searches the closures of callbacks for futures that they complete."""
    seen: list[str] = []

    async def first() -> Any:
        return await ask("a")

    async def second(future: asyncio.Future[None]) -> Any:
        await future
        return await ask("b")

    async def body(_: Branch) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(_: object) -> None:
            if not future.done():
                future.set_result(None)
            seen.append(word)

        task = asyncio.create_task(first())
        task.add_done_callback(done)
        waiting = asyncio.create_task(second(future))
        await asyncio.sleep(0.001)  # the round inspects the callback meanwhile
        if seen:
            word = "never"
        await asyncio.gather(task, waiting)

    def ignore(_: object, context: dict[str, Any]) -> None:
        assert isinstance(context["exception"], NameError), context

    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(ignore)
    try:
        assert await brackets(body) == [["a"], ["b"]]
    finally:
        loop.set_exception_handler(before)


async def test_several_strands_may_wait_for_bare_futures() -> None:
    async def waiting(question: str) -> None:
        await later()
        await ask(question)

    async def body(_: Branch) -> None:
        await asyncio.gather(ask("a"), waiting("b"), waiting("c"))

    assert await brackets(body) == [["a", "b", "c"]]


class Opaque(Coroutine[Any, Any, Any]):
    """A coroutine of a type other than Python's, as compiled libraries have."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        return self._inner.send(value)

    def throw(self, *args: Any) -> Any:
        return self._inner.throw(*args)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


async def test_an_opaque_coroutine_is_a_device() -> None:
    async def hidden() -> None:
        await later()

    assert await brackets_next_to_an_ask(lambda: asyncio.create_task(Opaque(hidden()))) == [
        ["a", "b"]
    ]


async def test_a_body_may_end_while_its_round_settles() -> None:
    """A task that no strand awaits has asked; the body waits for a timer and returns."""

    async def body(_: Branch) -> str:
        event = asyncio.Event()
        helpers.append(asyncio.create_task(ask_here("a")))
        asyncio.get_running_loop().call_later(0.01, event.set)
        await event.wait()
        return "done"

    helpers: list[asyncio.Task[Any]] = []
    assert await brackets(body) == []
    assert helpers[0].cancelled()


async def test_a_round_interrupted_while_it_settles_leaves_no_timer() -> None:
    async def body(_: Branch) -> None:
        await asyncio.gather(ask("a"), asyncio.Event().wait())

    loop: Any = asyncio.get_running_loop()
    world = World()
    async with world.call(body, world.journal()) as call:
        trying = asyncio.create_task(call.round())
        await asyncio.sleep(0.01)
        trying.cancel()
        await asyncio.wait([trying])
    assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


@pytest.mark.parametrize("ticks", range(4))
async def test_a_wait_whose_tasks_have_ended_is_ready_and_prolongs_the_round(ticks: int) -> None:
    """Between the end of tasks and the wake-up of their waiter, the loop makes one more pass."""

    async def briefly() -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)

    async def shielded_twice() -> None:
        await asyncio.shield(asyncio.shield(asyncio.gather(briefly(), briefly())))

    assert await brackets_next_to_an_ask(shielded_twice) == [["a", "b"]]
