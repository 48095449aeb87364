"""Branches that sleep: their run waits as long, or asks, and the branches continue at their times."""

from typing import Any

import pytest

from anabranch.chat._web.conversations import Conversations
from anabranch.messages import SampleReply
from anabranch.testing import calls
from tests.agents.asking import deciding, forks
from tests.chat.machines import Machines, ends, open_runs
from tests.chat.sleepers import ROW, WEEK, poll, remind, seat
from tests.diary import DONE

pytestmark = pytest.mark.usefixtures("nothing_done")


def use(*names: str) -> SampleReply:
    nothing: dict[str, Any] = {}
    return calls(*((f"use_{name}", name, nothing) for name in names))


class Sleeping(Machines):
    """Two branches, one and two, whose wakes come at their times."""

    def __init__(
        self, url: str, one: Any, two: Any = "second", beside: tuple[str, ...] = ()
    ) -> None:
        fork = forks("one", "two").content
        go = SampleReply(content=(*fork, *use(*beside).content)) if beside else forks("one", "two")
        super().__init__(url, deciding(go=go, one=one, two=two))

    async def due(self, *processes: Conversations) -> int:
        """Deliver the wakes that are due, and their successors; return the number of wakes."""
        taken = 0
        while due := [each for each in self.engine.wakes if each.not_before <= self.clock.now()]:
            wake = self.random.choice(due)
            self.engine.wakes.remove(wake)
            await self.random.choice(processes).advance(wake)
            taken += 1
            assert taken < 50, "branches are called for again and again"
        return taken

    async def at(self, process: Conversations, seconds: float) -> int:
        self.clock.advance(seconds)
        return await self.due(process)

    async def answer(self, process: Conversations, run: str = "r2") -> None:
        [question] = await self.asked(process)
        found = await process.find("t1", None)
        assert found is not None
        await found.answer({question.id: ROW}, run)
        await self.due(process)


async def test_an_answer_continues_a_branch_that_also_sleeps(url: str) -> None:
    """One tool of the branch sleeps, and another one asks; other branches continue meanwhile."""
    here = Sleeping(url, use("remind", "seat"), use("poll"))
    async with here.process(seat, remind, poll) as one:
        await here.begun(one)
        await here.due(one)
        assert await ends(one) == ["interrupt"]
        await here.answer(one)
        assert "row 7" in DONE
        for _ in range(3):
            await here.at(one, 3600.0)
        assert "third" in DONE
        await here.at(one, WEEK)
        assert await ends(one) == ["interrupt", "success"]
    assert sorted(DONE) == ["first", "held", "milk", "row 7", "second", "third", "woken"]


@pytest.mark.parametrize("lost", [False, True], ids=["woken", "lost"])
async def test_a_run_waits_as_long_as_all_of_its_branches_sleep(url: str, lost: bool) -> None:
    here = Sleeping(url, use("remind"), use("poll"), beside=("poll",))
    begun = here.clock.now()
    async with here.process(poll, remind) as one:
        await here.begun(one)
        await here.due(one)
        for _ in range(3):
            here.clock.advance(3600.0 - 1.0)
            assert await here.due(one) == 0
            here.clock.advance(1.0)
            if lost:
                here.engine.wakes.clear()
                await here.engine.look(one)
            await here.due(one)
        assert {each.not_before for each in here.engine.wakes} == {begun + WEEK}
        here.clock.advance(WEEK)
        await here.due(one)
        assert await ends(one) == ["success"]
        assert (await open_runs(here), here.engine.wakes) == ([], [])
    assert sorted(DONE) == ["first"] * 2 + ["milk"] + ["second"] * 2 + ["third"] * 2 + ["woken"]


async def test_a_stop_finds_branches_that_sleep(url: str) -> None:
    here = Sleeping(url, use("remind"), use("seat"))
    async with here.process(seat, remind) as one:
        conversation = await here.begun(one)
        await here.due(one)
        await conversation.say("nothing", "r2")
        await here.due(one)
        assert await open_runs(here) == []
        assert sorted(DONE) == ["any row", "held", "milk", "not milk"]
        await here.at(one, WEEK)
        assert await ends(one) == ["interrupt", "success"]
