"""The number of requests of a conversation to its store: each costs a thread, a connection, and time."""

import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import cast

import pytest

from anabranch import Accepted, BranchContext, tool
from anabranch.chat._web import log_writer
from anabranch.chat._web.conversation import RUNS, Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.engines import InProcessEngine, Wake
from anabranch.messages import ElicitReply, SampleReply
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Thread
from tests.chat.web import SEAT
from tests.patience import PATIENCE
from tests.stores.watched import WatchedDatabase

YES = ElicitReply(action="accept", content={"row": 7})


class Counted(WatchedDatabase):
    """Counts requests by the store's methods."""

    def __init__(self) -> None:
        super().__init__("memory:")
        self.requests: Counter[str] = Counter()

    async def asked(self, name: str) -> None:
        self.requests[name] += 1


@tool(elicits=[SEAT])
async def journey(ctx: BranchContext) -> int:
    """Ask three times, with an effect after each answer."""
    rows = 0
    for _ in range(3):
        answer = await ctx.elicit(SEAT, "Which row?")
        rows += await ctx.step(taken, answer.content.row if isinstance(answer, Accepted) else 0)
    return rows


def taken(row: int) -> int:
    return row


CALL = calls(("use", "journey", {}), text="Let me see.")


class Rounds:
    """A conversation whose runs a worker takes when the test calls it."""

    def __init__(self, conversations: Conversations, conversation: Conversation) -> None:
        self.conversations = conversations
        self.conversation = conversation
        self.seen = 0

    async def work(self, run: str) -> str:
        """Take a run to its end; return the question at its end."""
        await self.conversations.advance(Wake("t", run, RUNS))
        await self.conversation.log.flush()
        async with aclosing(self.conversation.log.follow(self.seen)) as following:
            async for first, events, _ in following:
                self.seen = first + len(events) - 1
                ends = [json.loads(each) for each in events if each.startswith(RUN_ENDS)]
                if ends:
                    [asked] = ends[-1]["outcome"]["interrupts"]
                    return str(asked["id"])
        raise AssertionError


@asynccontextmanager
async def beginning(
    database: WatchedDatabase, reply: SampleReply | str = CALL
) -> AsyncGenerator[Rounds]:
    """Return a conversation without messages, whose model by default calls the tool."""
    (stored, trees), engine = database.stores, InProcessEngine()
    conversations = Conversations(
        trees,
        MockModel(lambda _: reply),
        [journey],
        calls=stored,
        engine=engine,
        clock=ManualClock(),  # no lease is renewed, even on a slow machine
    )
    conversation = await conversations.begin(Thread("t", 0.0))
    yield Rounds(conversations, cast("Conversation", conversation))
    await engine.close()
    await trees.close()


@asynccontextmanager
async def begun(database: WatchedDatabase) -> AsyncGenerator[tuple[Rounds, str]]:
    """Return a conversation that has asked, and its question."""
    async with beginning(database) as rounds:
        await rounds.conversation.say("/journey", "run.0")
        yield rounds, await rounds.work("run.0")


BY_WEB = {
    # the question, and whether it is answered; whether its call has expired
    "InDatabase._rows": 2,
    "Calls.answer": 1,  # whether it has expired by then, and the row's later deadline
    "Events.begin": 1,
    "Trees.append_after": 1,  # the answer, and its event
    "Events.move": 1,  # the run waits for a worker
}
BY_WORKER = {
    "Events.take": 1,
    # the run's events; what to do; what there is to ask; what has come when the run had ended; whether
    # the call has expired; this test's own reading
    "InDatabase._rows": 6,
    "Calls.open_round": 1,
    "Calls.record": 2,  # the answer, before its effect; the effect
    "Calls.end_round": 1,
    "Trees.append_after": 1,  # the question, and its event
    "Events._append": 1,  # the end of the run
}


TO_A_QUESTION = {
    "Events.begin": 1,
    "Events.move": 1,  # the run waits for a worker
    "Events.take": 1,
    # the run's events; three times the end of the thread; when the question expires; this test's own
    # reading
    "InDatabase._rows": 6,
    "Events._append": 2,  # a text begins; the run ends
    "Trees.node": 1,  # whether another worker has stored the message
    "Trees.append_after": 3,  # the message, the reply with its call, the question; and their events
    "Calls.open_round": 1,
    "Calls.end_round": 1,
}


async def test_a_message_stores_each_moment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", PATIENCE)
    database = Counted()
    async with beginning(database) as rounds:
        database.requests.clear()
        await rounds.conversation.say("Which seat?", "run.0")
        await rounds.work("run.0")
        assert database.requests == Counter(TO_A_QUESTION), database.requests


TO_A_REPLY = {
    "Events.begin": 1,
    "Events.move": 1,  # the run waits for a worker
    "Events.take": 1,
    "InDatabase._rows": 2,  # the run's events; the end of the thread
    "Events._append": 1,  # a text begins
    "Trees.node": 1,  # whether another worker has stored the message
    "Trees.append_after": 2,  # the message; the reply, and the end of the run
}


async def test_the_last_reply_of_a_turn_is_stored_with_the_end_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", PATIENCE)
    database = Counted()
    async with beginning(database, "Any.") as rounds:
        database.requests.clear()
        await rounds.conversation.say("Which seat?", "run.0")
        await rounds.conversations.advance(Wake("t", "run.0", RUNS))
        assert database.requests == Counter(TO_A_REPLY), database.requests
        end = json.loads((await rounds.conversation.log.read(0))[-1])
        assert end["outcome"] == {"type": "success"}
        assert not await rounds.conversation.is_running()


async def test_a_round_repeats_no_request_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", PATIENCE)  # events wait for the end of the run
    database = Counted()
    async with begun(database) as (rounds, question):
        asked = question
        for number in (1, 2):
            database.requests.clear()
            await rounds.conversation.answer({asked: YES}, f"run.{number}")
            by_web = database.requests.copy()
            database.requests.clear()
            asked = await rounds.work(f"run.{number}")
            assert by_web <= Counter(BY_WEB), by_web
            assert database.requests <= Counter(BY_WORKER), database.requests
