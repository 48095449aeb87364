"""What a run does when another run was first, or when nothing can be written any more."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from anabranch.call import Answer, Branch, Entry, Owed
from anabranch.errors import StepFailed, ToolError, error_to_json
from tests.call.harness import Book, World, ask, step

BUILD = "t/build.1"
REFUSED = error_to_json(StepFailed(BUILD, "Refused", "no"))


class Site:
    """Where something is built, or not, and razed again."""

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
    """A recorder to which another run has already told what came of the building."""

    theirs: Mapping[str, Any] | None = None

    async def record(
        self, entries: Mapping[str, Entry], owed: Mapping[str, Owed]
    ) -> Mapping[str, Entry]:
        written = await super().record(entries, owed)
        return {
            step_id: replace(entry, **(self.theirs or {})) if step_id == BUILD else entry
            for step_id, entry in written.items()
        }


async def test_if_the_first_run_failed_so_does_this_one_and_its_effect_is_not_owed() -> None:
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
    assert journal.owed == []


async def test_if_the_first_run_succeeded_so_does_this_one_and_owes_its_undo() -> None:
    site = Site(fails=True)
    book = Beaten(theirs={"value": "theirs", "error": None})
    world = World(recorder=book)

    async def body(_: Branch) -> None:
        raise ToolError(f"not wanted: {await step(site.build, undo=site.raze)}")

    async with world.call(body, world.journal()) as call:
        with pytest.raises(ToolError, match="not wanted: theirs"):
            await call.round()
    assert site.done == ["build", "raze theirs"]
    assert book.paid_for == [BUILD]


async def test_a_live_run_that_cannot_write_ends_as_in_a_crash_with_nothing_undone() -> None:
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
    assert [owed.step_id for owed in journal.owed] == [BUILD]
    assert book.paid_for == []
