"""The clock and an answer race for a question with a time limit, in two processes: its tool sees
one of them.

The answer arrives before, during or after the work at the deadline. Wakes come twice, late or never.
The test controls the clock and the order: the other process acts between two reads of the store.
"""

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest

from anabranch._aio import run_shielded
from anabranch.agents import BranchSelf
from anabranch.chat._web.answers import AnswerRefusedError
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import open_work
from anabranch.engines import Wake
from anabranch.messages import SampleRequest
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Surroundings, Thread, TreeStore
from tests.agents.asking import deciding, forks
from tests.chat.machines import Noting, check, events_of
from tests.chat.sleepers import DAY, ROW, seat
from tests.diary import DONE
from tests.randomised import SEED, times

pytestmark = pytest.mark.usefixtures("nothing_done")

NEVER = 1_000
LATE = 3_600.0


def in_the_run(random: Random) -> Callable[[SampleRequest], Any]:
    wanted = {"limit_first": random.random() < 0.5}
    return deciding(go=calls(("use", "seat", wanted)))


def in_a_branch(random: Random) -> Callable[[SampleRequest], Any]:
    wanted = {"limit_first": random.random() < 0.5}
    return deciding(go=forks("one", "two"), one=calls(("use", "seat", wanted)), two="second")


class Race:
    """Two processes on one store, and the moment of the answer."""

    def __init__(self, decide: Callable[[SampleRequest], Any], random: Random) -> None:
        self.clock, self.engine, self.model = ManualClock(), Noting(), MockModel(decide)
        self.random = random
        self.processes: list[Conversations] = []
        self.reads = NEVER
        self.between: Callable[[], Coroutine[Any, Any, None]]
        self.answers: list[str] = []

    async def open(self, stack: AsyncExitStack, url: str) -> None:
        stored, trees = open_stores(url)
        for number in range(2):
            if number and url != "memory:":
                stored, trees = open_stores(url)
            stack.push_async_callback(trees.close)
            stack.push_async_callback(stored.close)
            tools: list[Any] = [seat, BranchSelf()]
            process = Conversations(
                trees, self.model, tools, calls=stored, engine=self.engine, clock=self.clock
            )
            stack.push_async_callback(process.close)
            self.processes.append(process)

    def watch(self, store: TreeStore) -> None:
        """Count the reads of a tree, and run a function between two of them."""
        read = store.around

        async def around(thread_id: str, node_id: str | None = None) -> Surroundings | None:
            self.reads -= 1
            if self.reads == 0:  # another process runs it, even if this one dies
                await run_shielded(self.between())
            return await read(thread_id, node_id)

        store.around = around  # type: ignore[method-assign]

    def soon(self, between: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a function between two of the next reads."""
        self.reads, self.between = self.random.randrange(1, 12), between

    async def time_passes(self) -> None:
        self.clock.advance(2.0)
        await self.due("once", "twice")

    async def answer(self) -> None:
        """Answer the open question, if any, in the second process; time may pass meanwhile."""
        process, self.reads = self.processes[1], NEVER
        if self.random.random() < 0.5:
            self.soon(self.time_passes)
        asked = await process.questions.open_in("t1")
        found = await process.find("t1", None)
        assert found is not None
        for question in asked:
            try:
                await found.answer({question.interrupt_id: ROW}, f"answer {len(self.answers)}")
                self.answers.append("accepted")
            except AnswerRefusedError as refused:
                self.answers.append(refused.reason)

    async def due(self, *ways: str) -> None:
        """Deliver the wakes that are due, each once or twice; or lose them, and look for due runs."""
        for _ in range(100):
            due = [each for each in self.engine.wakes if each.not_before <= self.clock.now()]
            if not due:
                return
            wake = self.random.choice(due)
            self.engine.wakes.remove(wake)
            how = self.random.choice(ways or ("once", "twice", "lost"))
            if how != "lost":
                await self.advance(wake)
            if how == "twice":
                await self.advance(wake)
            if how == "lost":
                self.clock.advance(60.0)
                await self.engine.look(self.random.choice(self.processes))
        raise AssertionError("wakes follow each other for ever")

    async def advance(self, wake: Wake) -> None:
        await self.processes[0].advance(wake)

    async def settled(self) -> None:
        """Let time pass until no run waits for a time."""
        for _ in range(4):
            await self.due()
            self.clock.advance(LATE)
            await self.engine.look(self.processes[0])
        await self.due()


@pytest.mark.parametrize("number", range(times(3, gate=1)))
@pytest.mark.parametrize("place", [in_the_run, in_a_branch], ids=["run", "branch"])
@pytest.mark.parametrize("store", ["sqlite", "memory"])
async def test_a_question_is_answered_once_by_the_user_or_the_clock(
    tmp_path: Any, store: str, place: Callable[[Random], Any], number: int
) -> None:
    random = Random(f"{SEED} {number}")
    race = Race(place(random), random)
    async with AsyncExitStack() as stack:
        await race.open(stack, "memory:" if store == "memory" else f"sqlite:///{tmp_path}/chat.db")
        one, two = race.processes
        if place is in_the_run:  # in a branch, the answer comes between two wakes
            for tree in {
                id(each.agent.store): each.agent.store for each in race.processes
            }.values():
                race.watch(tree)
        conversation = await one.begin(Thread("t1", race.clock.now()))
        assert conversation is not None
        await conversation.say("go", "r1")

        if random.random() < 0.3:  # while the question is asked
            race.soon(race.answer)
        await race.due()
        race.clock.advance(DAY + random.choice([-120.0, -1.0, 0.0]) - 1.0)
        if random.random() < 0.5:  # just before the deadline
            await race.answer()
        race.soon(race.answer)
        race.clock.advance(random.choice([0.0, 1.0, 2.0]))
        await race.due()
        race.clock.advance(DAY)
        await race.settled()
        await race.answer()

        taken = "row 7" if "accepted" in race.answers else "any row"
        assert ["held", taken] == DONE
        assert race.answers.count("accepted") <= 1
        assert {*race.answers} <= {"accepted", "expired", "answered"}
        assert await two.questions.open_in("t1") == []
        await _nothing_is_left(race)


async def _nothing_is_left(race: Race) -> None:
    one, two = race.processes
    events = await events_of(two)
    check(events, await one.agent.store.tree("t1"))
    ended = [each for each in events if each["type"] in {"RUN_FINISHED", "RUN_ERROR"}]
    assert [each["outcome"]["type"] for each in ended][-1] == "success"
    assert await one.agent.cut_off("t1") is None
    stored = open_run_events(one.agent.store)
    assert await open_work(stored, race.clock.now(), 10) == []
    assert await stored.turn("t1") is None
    await stored.close()
