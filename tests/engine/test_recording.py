"""A run whose effect another run recorded first, or whose recorder cannot write."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from anabranch._engine import Answer, Branch, Compensation, Entry, Finished
from anabranch.errors import StepFailed, ToolError, error_to_json
from tests.engine.harness import Book, World, ask, step

BUILD = "t/build.1"
REFUSED = error_to_json(StepFailed(BUILD, "Refused", "no"))


class Site:
    """A site where the steps build and raze."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.done: list[str] = []

    def build(self) -> str:
        self.done.append("build")
        if self.fails:
            raise OSError("no ground")
        return "mine"

    def raze(self, what: str) -> None:
        self.done.append(f"raze {what}")


@dataclass
class Beaten(Book):
    """A recorder that already has another run's outcome of the building."""

    theirs: Mapping[str, Any] | None = None

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> Mapping[str, Entry]:
        written = await super().record(entries, compensations)
        return {
            step_id: replace(entry, **(self.theirs or {})) if step_id == BUILD else entry
            for step_id, entry in written.items()
        }


async def test_a_run_fails_without_undos_if_the_first_run_failed() -> None:
    site = Site()
    world = World(recorder=Beaten(theirs={"value": None, "error": REFUSED}))
    journal = world.journal()

    async def body(_: Branch) -> str:
        with pytest.raises(StepFailed, match="Refused"):
            await step(site.build, undo=site.raze)
        raise ToolError("nothing built")

    async with world.call(body, journal) as call:
        with pytest.raises(ToolError, match="nothing built"):
            await call.round()
    assert site.done == ["build"]
    assert journal.compensations == []


async def test_a_run_succeeds_and_owes_the_undo_if_the_first_run_succeeded() -> None:
    site = Site(fails=True)
    book = Beaten(theirs={"value": "theirs", "error": None})
    world = World(recorder=book)

    async def body(_: Branch) -> None:
        raise ToolError(f"not wanted: {await step(site.build, undo=site.raze)}")

    async with world.call(body, world.journal()) as call:
        with pytest.raises(ToolError, match="not wanted: theirs"):
            await call.round()
    assert site.done == ["build", "raze theirs"]
    assert book.undone_steps == [BUILD]


async def test_a_live_run_that_cannot_write_ends_like_a_crash_without_undos() -> None:
    site = Site()
    book = Book()
    world = World(recorder=book)
    journal = world.journal()

    async def body(_: Branch) -> None:
        await step(site.build, undo=site.raze)
        await ask("go on")
        await step(site.build)

    async with world.call(body, journal) as call:
        async for asked in call.asks():
            book.is_closed = True
            call.answer(asked.step_id, Answer("yes"))
        with pytest.raises(OSError, match="closed"):
            await call.result()
    assert site.done == ["build"]
    assert [due.step_id for due in journal.compensations] == [BUILD]
    assert book.undone_steps == []


async def test_an_abandoned_live_run_without_a_writable_store_is_not_undone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unreachable(Book):
        async def failing(self, error: dict[str, Any] | None) -> None:
            raise OSError("out of reach")

    site = Site()
    world = World(recorder=Unreachable())

    async def body(_: Branch) -> None:
        await step(site.build, undo=site.raze)
        await ask("go on")

    async with world.call(body, world.journal()) as call:
        async for _ in call.asks():
            break
    assert site.done == ["build"]
    assert "call 'call_1' was left, and could not be undone yet" in caplog.text


@dataclass
class Slow(Book):
    """A recorder that takes a while to record the outcome of ``t/slow.1``."""

    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    batches: list[list[str]] = field(default_factory=list[list[str]])

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> Mapping[str, Entry]:
        self.batches.append(list(entries))
        if "t/slow.1" in entries:
            self.arrived.set()
            await self.opened.wait()
        return await super().record(entries, compensations)


async def test_an_effect_waits_for_the_record_of_another_strand() -> None:
    book, done = Slow(), list[str]()
    world = World(recorder=book)

    def first() -> None:
        done.append("first")

    async def slow() -> None:
        done.append("slow")

    async def next_one() -> None:
        done.append("next" if book.opened.is_set() else "too early")

    async def afterwards() -> None:
        await book.arrived.wait()
        await step(next_one)

    async def open_it() -> None:
        await book.arrived.wait()
        for _ in range(20):  # by now the other strand waits, if it waits at all
            await asyncio.sleep(0)
        book.opened.set()

    async def body(_: Branch) -> None:
        await step(first)
        slowly = step(slow)
        await asyncio.gather(slowly, afterwards(), open_it())

    async with world.call(body, world.journal()) as call:
        await call.round()
    assert done == ["first", "slow", "next"]
    assert book.batches[:3] == [[], ["t/first.1"], ["t/slow.1"]]
    assert len(book.batches) == 4


async def test_a_cancelled_strand_gets_the_error_of_a_failed_record() -> None:
    book = Slow()
    world = World(recorder=book)

    async def slow() -> None: ...

    async def body(_: Branch) -> None:
        writing = asyncio.ensure_future(step(slow))
        await book.arrived.wait()
        writing.cancel()
        await asyncio.sleep(0)
        book.is_closed = True
        book.opened.set()
        await asyncio.wait({writing})

    async with world.call(body, world.journal()) as call:
        with pytest.raises(OSError, match="closed"):
            await call.round()


async def test_a_strand_cancelled_while_it_records_ends_after_the_record() -> None:
    book = Slow()
    world = World(recorder=book)

    async def slow() -> str:
        return "done"

    async def body(_: Branch) -> bool:
        writing = asyncio.ensure_future(step(slow))
        await book.arrived.wait()
        writing.cancel()
        await asyncio.sleep(0)
        book.opened.set()
        await asyncio.wait({writing})
        return writing.cancelled()

    async with world.call(body, world.journal()) as call:
        assert await call.round() == Finished(True)
    assert book.entries["t/slow.1"].value == "done"
