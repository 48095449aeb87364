"""A replay runs only recorded operations, and reports where the body stops."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch._engine import Answer, Branch, Call, Finished, Journal, Stopped
from anabranch.errors import NonDeterminismError
from tests.diary import DONE, note
from tests.engine.harness import NAME, Body, World, ask, branch, gather, say, step

pytestmark = pytest.mark.usefixtures("nothing_done")


async def undo(what: str) -> None:
    DONE.append(f"undo {what}")


@asynccontextmanager
async def heartbeat() -> AsyncGenerator[None]:
    """Run a task that does nothing until it is cancelled."""
    task = asyncio.create_task(asyncio.sleep(3600))
    yield
    task.cancel()


async def original(_: Branch) -> list[Any]:
    await say("hello")
    await step(note, "a", undo=undo)
    first = await ask("first?")
    return [first, *await gather([ask("left?"), step(note, "b")])]


async def recorded(body: Body[Any], *rounds: dict[str, str]) -> Journal:
    """Return the journal after one round for each set of answers, and one more round."""
    journal = World().journal()
    for answers in (*rounds, {}):
        async with World().call(body, journal) as call:
            await call.round()
        journal = Journal.loads(journal.dumps())
        journal.answer({step_id: Answer(value) for step_id, value in answers.items()})
    DONE.clear()
    return journal


async def replayed(body: Body[Any], journal: Journal) -> Finished[Any] | Stopped:
    world = World()
    async with world.call(body, journal) as call:
        outcome = await call.replay()
    assert (DONE, world.notices) == ([], [])
    return outcome


async def test_a_replay_stops_at_the_open_ask() -> None:
    assert await replayed(original, await recorded(original)) == Stopped(("t/ask.1",))


async def test_a_replay_stops_at_all_next_operations() -> None:
    journal = await recorded(original)
    journal.answer({"t/ask.1": Answer("A")})
    assert await replayed(original, journal) == Stopped(("t/ask.2", "t/note.2"))


async def test_an_empty_record_stops_at_the_first_step() -> None:
    assert await replayed(original, World().journal()) == Stopped(("t/note.1",))


async def test_a_replay_of_a_complete_record_finishes() -> None:
    async def body(_: Branch) -> str:
        return str(await ask("first?"))

    journal = await recorded(body)
    journal.answer({"t/ask.1": Answer("A")})
    assert await replayed(body, journal) == Finished("A")


async def test_a_replay_of_a_failing_body_fails() -> None:
    async def body(_: Branch) -> None:
        await step(note, "a", undo=undo)
        await ask("first?")
        raise LookupError("gone")

    journal = await recorded(body)
    journal.answer({"t/ask.1": Answer("A")})
    with pytest.raises(LookupError, match="gone"):
        await replayed(body, journal)
    assert DONE == []


async def test_a_replay_ends_when_the_body_swallows_the_drift_for_ever() -> None:
    async def changed(_: Branch) -> None:
        while True:
            try:
                await step(note, "another")
            except NonDeterminismError:
                continue

    def cut_off(fault: Exception) -> None:
        call.abort(fault)

    journal = await recorded(original)
    call: Call[None] = Call(changed, journal, name=NAME, on_fault=cut_off)
    async with call:
        with pytest.raises(NonDeterminismError):
            await call.replay()


async def test_a_heartbeat_neither_delays_a_replay_nor_hides_an_answer() -> None:
    """The replay does not look for entries of work that the end of a round interrupted."""

    async def original(_: Branch) -> None:
        async with heartbeat():
            await ask("first?")

    async def changed(_: Branch) -> None:
        async with heartbeat():
            await step(note, "new")

    journal = await recorded(original)
    text = journal.dumps()
    assert await replayed(original, journal) == Stopped(("t/ask.1",))
    assert await replayed(changed, Journal.loads(text)) == Stopped(("t/note.1",))


async def test_a_passed_deadline_does_not_affect_the_waiting_strands_of_a_replay() -> None:
    async def body(_: Branch) -> None:
        await branch(lambda _: ask("first?"), name="b", timeout=60)

    journal = await recorded(body)
    assert await replayed(body, journal) == Stopped(("t/b#1/ask.1",))
