"""Conversations over an engine that loses every wake and runs no job: workers find the work in the
store.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest

from anabranch._durable import TurnState
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.thread_lease import SECONDS
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, TestEngine
from anabranch.tree import Thread
from tests.chat.sleepers import ROW, WEEK, asked, decide, remind, seat
from tests.chat.web import on_both_databases
from tests.diary import DONE

pytestmark = pytest.mark.usefixtures("nothing_done")

STEP = 0.0005
"""Seconds by which the clock moves in each pass of the loop: little, since stores work in threads."""


class Lossy:
    """Processes over an engine that loses every wake and skips every periodic job."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.events = open_run_events(url)
        self._engine = TestEngine(0, drop=1.0, clock=self.clock)
        self._url = url

    @asynccontextmanager
    async def process(self, concurrency: int | None) -> AsyncGenerator[Conversations]:
        """Yield a process, which takes runs inside the block if it has a concurrency."""
        calls, trees = open_stores(self._url)
        conversations = Conversations(
            trees,
            MockModel(decide),
            [remind, seat],
            calls=calls,
            engine=self._engine,
            clock=self.clock,
        )
        async with conversations.running(concurrency):
            yield conversations
        await calls.close()
        await trees.close()

    @asynccontextmanager
    async def begun(self, text: str) -> AsyncGenerator[Conversation]:
        """Return a conversation with a run that waits for a worker."""
        async with self.process(None) as web:
            found = await web.begin(Thread("t1", self.clock.now()))
            assert found is not None
            await found.say(text, "r1")
            yield found
        await self.events.close()

    async def until_asleep(self) -> None:
        while (turn := await self.events.turn("t1")) and turn.state is not TurnState.WAITING:  # noqa: ASYNC110 - a worker changes the turn
            await asyncio.sleep(0)
        assert turn is not None


async def until_ended(conversation: Conversation, runs: int) -> None:
    async with aclosing(conversation.log.follow(0)) as following:
        async for _, events, _ in following:
            runs -= sum(each.startswith(RUN_ENDS) for each in events)
            if not runs:
                return


@on_both_databases
async def test_a_worker_continues_a_call_that_has_slept(url: str) -> None:
    here = Lossy(url)
    async with here.begun("remind") as conversation, here.process(4):
        async with here.clock.running(STEP):
            await here.until_asleep()
        here.clock.advance(WEEK)
        async with here.clock.running(STEP):
            await until_ended(conversation, 1)
    assert DONE == ["milk", "woken"]


async def test_a_worker_continues_a_call_whose_answer_has_arrived(url: str) -> None:
    here = Lossy(url)
    async with here.begun("seat") as conversation, here.process(4), here.clock.running(STEP):
        await until_ended(conversation, 1)
        await conversation.answer({(await asked(conversation))["id"]: ROW}, "r2")
        await until_ended(conversation, 2)
    assert DONE == ["held", "row 7"]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen to be dead", "silent"])
async def test_a_worker_continues_a_call_whose_process_has_died(url: str, is_seen: bool) -> None:
    """A silent process may still live, so its lease has to run out first."""
    here = Lossy(url)
    other, now = open_run_events(url), here.clock.now()
    await other.processes.enter()
    async with here.begun("seat") as conversation:
        assert await other.take("t1", "other", now + SECONDS, now=now, version="")
        if is_seen:
            await other.close()
        async with here.process(4), here.clock.running(STEP):
            await until_ended(conversation, 1)
    assert DONE == ["held"]
    assert is_seen or here.clock.now() >= now + SECONDS
    await other.close()
