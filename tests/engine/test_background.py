"""A question goes out whatever else the call does, and the end of a round never interrupts a step."""

import asyncio
import contextlib
import logging
import math
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import repeat
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from anabranch._engine import Branch, Journal, Waiting, checked_patience, quiescence, waits
from anabranch._engine import call as call_module
from anabranch.errors import NoProgressError
from tests.engine.harness import World, ask, branch, first_round, loudly, rounds, say, step
from tests.patience import PATIENCE
from tests.sockets import listening

FOREVER = 3600
Body = Callable[[Branch], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiescence, "GRACE", 0.02)
    monkeypatch.setattr(quiescence, "PATIENCE", FOREVER)


async def brackets(body: Body) -> list[list[str]]:
    async with asyncio.timeout(PATIENCE):
        return [sorted(asked) for asked in (await rounds(body)).brackets]


async def every(seconds: float, again: Callable[[], bool] = lambda: True) -> None:
    while again():  # noqa: ASYNC110 - it is not there to wait for anything
        await asyncio.sleep(seconds)


# -- background tasks: a short grace -------------------------------------------------------------


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    await asyncio.sleep(0)  # the task starts
    yield
    task.cancel()


def heartbeat() -> contextlib.AbstractAsyncContextManager[None]:
    return running(every(0.001))


async def ends_without_a_word() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(FOREVER)


async def steps_without_a_gap() -> None:
    for number in range(10_000):
        await step(asyncio.sleep, 0.001, name=f"beat {number}")


async def notices() -> None:
    while True:
        await say("alive")
        await asyncio.sleep(0)


async def bare_future() -> None:
    await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def task_group_with_a_poller() -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        poller = group.create_task(asyncio.sleep(FOREVER))
        yield
        poller.cancel()


@asynccontextmanager
async def anyio_task_group_with_a_poller() -> AsyncGenerator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, FOREVER)
        yield
        group.cancel_scope.cancel()


@asynccontextmanager
async def socket_with_a_reader() -> AsyncGenerator[None]:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        task = asyncio.create_task(reader.readline())
        try:
            yield
        finally:
            task.cancel()
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def subprocess_whose_output_is_read() -> AsyncGenerator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-Sc", "import sys; sys.stdin.read()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    task = asyncio.create_task(process.stdout.readline())
    try:
        yield
    finally:
        task.cancel()
        process.stdin.close()
        await process.communicate()  # reads stdout to its end and closes it


@asynccontextmanager
async def mcp_client() -> AsyncGenerator[None]:
    async with Client(MCPServer("other")) as client:
        await client.list_tools()
        yield


BESIDE: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[None]]] = {
    "heartbeat": heartbeat,
    "heartbeat that ends without a word": lambda: running(ends_without_a_word()),
    "heartbeat of steps": lambda: running(steps_without_a_gap()),
    "heartbeat of notices": lambda: running(notices()),
    "spinner": lambda: running(every(0)),
    "bare future": lambda: running(bare_future()),
    "task group with a poller": task_group_with_a_poller,
    "task group of anyio with a poller": anyio_task_group_with_a_poller,
    "socket with a reader": socket_with_a_reader,
    "subprocess whose output is read": subprocess_whose_output_is_read,
    "client of MCP": mcp_client,
}


@pytest.mark.parametrize("beside", BESIDE)
async def test_a_question_is_asked_next_to_a_background_task(
    beside: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(_: Branch) -> list[Any]:
        async with BESIDE[beside]():
            return [await ask("a"), await ask("b")]

    async with asyncio.timeout(PATIENCE):
        run = await rounds(body)
    assert (run.value, run.brackets) == (["A", "B"], [["a"], ["b"]])
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


async def test_the_debug_log_names_the_place_of_a_background_task_at_the_end_of_a_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "anabranch.engine")

    async def body(_: Branch) -> Any:
        async with heartbeat():
            return await ask("a")

    await brackets(body)
    assert f"{__file__}:{every.__code__.co_firstlineno + 2}" in caplog.text


async def test_a_background_task_that_soon_asks_joins_the_other_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiescence, "GRACE", 5)

    async def late(question: str, seconds: float) -> Any:
        await asyncio.sleep(seconds)
        return await ask(question)

    async def body(_: Branch) -> list[Any]:
        tasks = [asyncio.create_task(late("b", 0.01)), asyncio.create_task(late("c", 0.02))]
        return [await ask("a"), *[await task for task in tasks]]

    assert await brackets(body) == [["a", "b", "c"]]


# -- work that the result needs: until the bound -------------------------------------------------


async def test_work_that_the_result_waits_for_is_not_cut_off_early() -> None:
    """The strand that asks b waits at a queue, which the busy strand fills after the grace."""

    async def feed(queue: asyncio.Queue[str]) -> None:
        await asyncio.sleep(0.1)
        await queue.put("b")
        await asyncio.sleep(FOREVER)

    async def second(queue: asyncio.Queue[str]) -> Any:
        return await ask(await queue.get())

    async def body(_: Branch) -> Any:
        queue: asyncio.Queue[str] = asyncio.Queue()
        feeder = asyncio.create_task(feed(queue))
        heard = await asyncio.gather(ask("a"), second(queue))
        feeder.cancel()
        return heard

    assert await brackets(body) == [["a", "b"]]


def busy_at_first(runs: int = 1) -> Callable[[], Coroutine[Any, Any, Any]]:
    """Return a function that asks. In its first runs, it first works longer than a round waits."""
    seconds = repeat(FOREVER, runs)

    async def late_question() -> Any:
        await asyncio.sleep(next(seconds, 0))
        return await ask("b")

    return late_question


async def test_work_outside_a_step_is_cut_off_at_the_bound_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quiescence, "PATIENCE", 0.02)
    late_question = busy_at_first()

    async def body(_: Branch) -> Any:
        return await asyncio.gather(ask("a"), late_question())

    async with asyncio.timeout(PATIENCE):
        run = await rounds(body)
    assert (run.value, run.brackets) == (["A", "B"], [["a"], ["b"]])
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert f"{__file__}:{late_question.__code__.co_firstlineno + 1} was busy" in warning
    assert "tool 't', call 'call_1'" in warning
    assert "ctx.step" in warning


async def test_a_strand_that_never_waits_is_cut_off_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiescence, "PATIENCE", 0.02)

    async def body(_: Branch) -> Any:
        heard: list[Any] = []

        async def first() -> None:
            heard.append(await ask("a"))

        await asyncio.gather(first(), every(0, lambda: not heard))
        return heard

    assert await brackets(body) == [["a"]]


async def test_strands_that_wake_each_other_for_ever_are_cut_off_at_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiescence, "PATIENCE", 0.05)

    async def body(_: Branch) -> Any:
        event = asyncio.Event()

        async def first() -> Any:
            heard = await ask("a")
            event.set()
            return heard

        ticking = asyncio.create_task(every(0.001))
        heard = (await asyncio.gather(first(), event.wait()))[0]
        ticking.cancel()
        return heard

    assert await brackets(body) == [["a"]]


def at_the_bound(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Shorten the bound, and return an event that is set when the round reaches it."""
    reached = asyncio.Event()
    out_of_patience = vars(quiescence.Quiescence)["_out_of_patience"]

    def reach(watching: quiescence.Quiescence) -> None:
        out_of_patience(watching)
        reached.set()

    monkeypatch.setattr(quiescence, "PATIENCE", 0.01)
    monkeypatch.setattr(quiescence.Quiescence, "_out_of_patience", reach)
    return reached


async def test_a_step_next_to_a_question_is_never_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reached = at_the_bound(monkeypatch)
    done: list[str] = []

    async def effect() -> None:
        await reached.wait()
        done.append("done")

    async def second() -> Any:
        await step(effect)
        return await ask("b")

    async def body(_: Branch) -> Any:
        return await asyncio.gather(ask("a"), second())

    assert await brackets(body) == [["a", "b"]]
    assert done == ["done"]
    assert caplog.records == []


async def test_after_the_bound_no_other_step_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    reached = at_the_bound(monkeypatch)
    done: list[int] = []

    async def effect(number: int) -> None:
        await reached.wait()
        done.append(number)

    async def second() -> None:
        for number in range(3):
            await step(effect, number)

    async def body(_: Branch) -> Any:
        return (await asyncio.gather(ask("a"), second()))[0]

    world = World()
    async with asyncio.timeout(PATIENCE), world.call(body, world.journal()) as call:
        outcome = await call.round()
    assert isinstance(outcome, Waiting)
    assert done == [0]
    assert await brackets(body) == [["a"]]


async def test_steps_continue_when_the_question_is_withdrawn_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The body's timer withdraws the question while the round waits for the end of a step."""
    monkeypatch.setattr(quiescence, "PATIENCE", 0.01)
    withdrawn = asyncio.Event()

    async def second() -> str:
        await step(withdrawn.wait)
        return "done"

    async def third() -> str:
        await asyncio.sleep(0.03)
        await step(str, name="another")  # this step waits while a question is open
        return "as well"

    async def fourth() -> None:
        await asyncio.sleep(0.03)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await step(str, name="never")

    async def first() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask("a")
        withdrawn.set()

    async def body(_: Branch) -> Any:
        return await asyncio.gather(first(), second(), third(), fourth())

    async with asyncio.timeout(PATIENCE):
        run = await rounds(body)
    assert (run.value, run.brackets) == ([None, "done", "as well", None], [])


async def test_each_call_can_set_its_patience() -> None:
    late_question = busy_at_first()

    async def body(_: Branch) -> Any:
        return await asyncio.gather(ask("a"), late_question())

    world = World(patience=0.02)
    async with asyncio.timeout(PATIENCE):
        assert (await rounds(body, world=world)).brackets == [["a"], ["b"]]


@pytest.mark.parametrize("patience", [0, -1.0, math.inf, math.nan])
def test_an_invalid_patience_is_refused(patience: float) -> None:
    with pytest.raises(ValueError, match="a positive number of seconds"):
        checked_patience(patience)
    assert checked_patience(None) is None
    assert checked_patience(0.5) == 0.5


def test_an_unreadable_place_is_described() -> None:
    assert waits.place_of([]) == "code that shows no frame"


# -- progress --------------------------------------------------------------------------------


async def test_a_call_cut_off_repeatedly_without_progress_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    late_question = busy_at_first(4)

    async def body(_: Branch) -> Any:
        return await asyncio.gather(ask("a"), late_question())

    world = World(patience=0.01)
    texts = [world.journal().dumps()]

    async def another() -> None:
        journal = Journal.loads(texts[-1])
        async with world.call(body, journal) as call:
            await call.round()
        texts.append(journal.dumps())

    for _ in range(3):
        await another()
    with pytest.raises(
        NoProgressError,
        match=r"3 rounds in a row were cut off at test_background\.py:\d+, .*ctx\.step",
    ):
        await another()
    assert len(caplog.records) == 4
    # An answer is progress.
    journal = Journal.loads(texts[-1])
    assert journal.stalled == 2
    journal.answer({step_id: loudly("a") for step_id in journal.pending})
    assert journal.stalled == 0
    async with world.call(body, journal) as call:
        assert isinstance(await call.round(), Waiting)
    assert journal.stalled == 0


async def test_a_question_in_a_branch_goes_out_next_to_a_heartbeat() -> None:
    async def inner(_: Branch) -> Any:
        async with heartbeat():
            return await ask("a")

    async def body(_: Branch) -> Any:
        return await branch(inner)

    assert await brackets(body) == [["a"]]


async def is_unwound(body: Body, journal: Journal) -> None:
    async with asyncio.timeout(PATIENCE), World().call(body, journal) as call:
        with pytest.raises(OSError, match="gone"):
            await call.unwind(OSError("gone"))


async def test_a_call_with_a_running_heartbeat_is_unwound() -> None:
    async def body(_: Branch) -> Any:
        async with heartbeat():
            return await ask("a")

    await is_unwound(body, await first_round(body))


async def test_a_call_whose_body_waits_for_ever_is_unwound() -> None:
    undone = list[str]()
    waiting = asyncio.Event()

    async def body(_: Branch) -> None:
        await step(str, "done", undo=undone.append)
        waiting.set()
        await asyncio.Event().wait()  # outside of a step: a replay waits for the event as well

    world = World()
    journal = world.journal()
    async with world.call(body, journal) as call:
        first = asyncio.ensure_future(call.round())
        await waiting.wait()
        stored = Journal.loads(journal.dumps())
        first.cancel()
    undone.clear()
    await is_unwound(body, stored)
    assert undone == ["done"]


async def test_unwinding_waits_for_a_slow_body_until_its_undos_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(call_module, "GRACE", 0.001)
    undone = list[str]()

    async def body(_: Branch) -> None:
        # Longer than the grace, before the body reaches its recorded steps.
        for _again in range(20):
            await asyncio.sleep(0.001)
        await step(str, "done", undo=undone.append)
        await ask("a")

    await is_unwound(body, await first_round(body))
    assert undone == ["done"]
