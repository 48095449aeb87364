"""Runs that lose their lease or their store although their process lives."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._durable import NewEvents, QueuedTurn, RunEvents, TurnRecord, TurnState
from anabranch.agents import Event, NodeAdded
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import shown_in
from anabranch.chat._web.live_turn import current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.thread_lease import SECONDS, STOP, ThreadLease
from anabranch.chat._web.thread_log import MISSED, RUN_ENDS, ThreadLog
from anabranch.chat._web.upkeep import APART, DueWork
from anabranch.errors import StoreError
from anabranch.messages import SampleRequest, ToolUseBlock
from anabranch.models import ModelError
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel
from anabranch.tree import HEAD, Node, Ref, Thread
from tests.chat import sleepers
from tests.chat.machines import Machines, ends, events_of, open_runs
from tests.chat.web import decide, named, reserve
from tests.suites.turn_samples import put_turn, running

RENEWED_EVERY = SECONDS / 3
STEP = 0.0005
"""Seconds by which the clock moves in each pass of the loop: little, since stores work in threads."""

STARTS = b'{"type":"RUN_STARTED"'


class Hall:
    """A service that reserves and releases seats."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.working = asyncio.Event()
        self.may_end = asyncio.Event()

    def reserve(self) -> str:
        self.done.append("reserve")
        return "seat"

    def release(self, what: str) -> None:
        self.done.append(f"release {what}")

    async def see(self) -> None:
        self.working.set()
        await self.may_end.wait()


def take_away(store: object, method: str, times: int = 1) -> None:
    """Let a method of a store fail a number of times, as during a lost connection."""
    whole, left = getattr(store, method), iter(range(times))

    async def fail_at_first(*arguments: object, **options: object) -> Any:
        if next(left, None) is not None:
            raise StoreError("The store cannot be reached.")
        return await whole(*arguments, **options)

    setattr(store, method, fail_at_first)


class Chat:
    """A conversation in which a tool reserves a seat."""

    def __init__(self, url: str) -> None:
        self.hall = hall = Hall()
        self.clock = ManualClock()
        self.calls, self.trees = open_stores(url)
        self.events = open_run_events(url)

        @tool
        async def book(ctx: BranchContext) -> str:
            await ctx.step(hall.reserve, undo=hall.release)
            await ctx.step(hall.see)
            return "booked"

        self.conversations = Conversations(
            self.trees, MockModel(lambda _: "unused"), [book], calls=self.calls, clock=self.clock
        )

    @asynccontextmanager
    async def begun(self) -> AsyncGenerator[Conversation]:
        """Yield the conversation; a process works on it inside the block."""
        async with self.conversations.running(4):
            found = await self.conversations.begin(Thread("t1", 0.0))
            assert found is not None
            yield found
        await self.events.close()
        await self.trees.close()

    async def kinds(self) -> list[str]:
        return [node.kind for node in (await self.trees.tree("t1")).nodes]


async def ended(conversation: Conversation) -> list[bytes]:
    """Return the events up to the end of a run."""
    found: list[bytes] = []
    async with aclosing(conversation.log.follow(0)) as following:
        async for _, events, _ in following:
            found += events
            if found[-1].startswith(RUN_ENDS):
                break
    return found


def whole(events: list[bytes], trees: list[str]) -> bool:
    """Return whether one run started and ended normally, and every node was shown."""
    runs = [json.loads(each) for each in events if each.startswith((STARTS, *RUN_ENDS))]
    assert [each["type"] for each in runs] == ["RUN_STARTED", "RUN_FINISHED"]
    assert runs[-1]["outcome"] == {"type": "success"}
    assert len(shown_in(events)) == len(trees)
    return trees == ["user", "assistant", "results"]


@pytest.mark.parametrize("method", ["open_round", "end_round", "record"])
async def test_a_run_continues_when_the_store_of_calls_is_available_again(
    url: str, method: str
) -> None:
    chat = Chat(url)
    take_away(chat.calls, method, times=2)
    chat.hall.may_end.set()
    async with chat.begun() as conversation, chat.clock.running(STEP):
        await conversation.say("/book", "r1")
        assert whole(await ended(conversation), await chat.kinds())
        assert chat.hall.done in (["reserve"], ["reserve"] * 2)
        [call] = await chat.calls.calls(9)
        assert call.state == "done"


@pytest.mark.parametrize("method", ["append_after", "path"])
async def test_a_run_continues_when_the_tree_is_available_again(url: str, method: str) -> None:
    """The tools' results may be stored then in a place where the model does not read them."""
    chat = Chat(url)
    async with chat.begun() as conversation:
        await conversation.say("/book", "r1")
        await chat.hall.working.wait()
        take_away(chat.trees, method)
        chat.hall.may_end.set()
        async with chat.clock.running(STEP):
            assert whole(await ended(conversation), await chat.kinds())
        assert chat.hall.done == ["reserve"]


async def test_a_stop_during_the_last_write_does_not_stop_the_next_run(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head is then the next run's message, below which a stopped turn would store its end."""
    machines = Machines(url, lambda _: "hello")
    async with machines.process() as process:
        agent = process.agent
        store: Any = agent.store
        whole = store.append_after

        async def stop_and_go_on(work: Any, nodes: Sequence[Node], *others: Any) -> Any:
            last = nodes[-1]
            if last.kind != "assistant":
                return await whole(work, nodes, *others)
            task = current_turn.get().task
            assert task is not None
            task.cancel()
            heads = await whole(work, nodes, *others)
            following = agent.dependencies.node("t1", last.id, "user", "next")
            await whole(lambda _: None, [following], [], [Ref(HEAD, following.id)])
            return heads

        monkeypatch.setattr(store, "append_after", stop_and_go_on)
        await machines.begun(process)
        await machines.drive(process)
        tree = await agent.store.tree("t1")
        assert [each.kind for each in tree.nodes] == ["user", "assistant", "user"]
        assert tree.ends == {}
        assert await ends(process) == ["success"]


async def test_readers_learn_of_the_work_of_a_terminal_when_a_run_continues_it(url: str) -> None:
    """A terminal stores nodes without events, so that a page has to read the tree again."""
    machines = Machines(url, decide)
    async with machines.process(reserve) as process:
        agent = process.agent
        await agent.store.create_thread(Thread("t1", 0.0))
        said = agent.dependencies.node("t1", None, "user", "reserve")
        use = ToolUseBlock(id="use", name="reserve", input={})
        await agent.add([said, agent.dependencies.node("t1", said.id, "assistant", [use])])
        await process.upkeep.resume()
        await machines.engine.look(process)
        await machines.drive(process)
        found = await process.find("t1", None)
        assert found is not None
        first, second, *_ = await found.log.read(0)
        assert first == MISSED
        assert second.startswith(STARTS)


async def test_a_run_that_continues_another_run_adds_no_missed_event(url: str) -> None:
    """The run continues after an answer, and at the deadline of a question without an answer."""
    machines = sleepers.Machines(url)
    async with machines.process([sleepers.seat]) as process:
        conversation = await machines.begun(process, "seat")
        question = (await sleepers.asked(conversation))["id"]
        await conversation.answer({question: sleepers.ROW}, "r2")
        await process.advance(machines.engine.wakes[-1])
        await conversation.say("seat", "r3")
        await process.advance(machines.engine.wakes[-1])
        machines.clock.advance(sleepers.DAY)
        await process.advance(machines.engine.wakes[-1])
        outcomes = ["interrupt", "success"] * 2
        assert await sleepers.ends_of(conversation) == outcomes
        assert MISSED not in await conversation.log.read(0)


async def test_an_error_after_the_last_write_does_not_fail_the_next_run(url: str) -> None:
    """The head is then the next run's message, below which a failed turn would store its end."""
    machines = Machines(url, lambda _: "hello")
    async with machines.process() as process:
        agent = process.agent

        async def fail_at_the_end(event: Event) -> None:
            if isinstance(event, NodeAdded) and event.node.kind == "assistant":
                following = agent.dependencies.node("t1", event.node.id, "user", "next")
                await agent.store.append([following], refs=[Ref(HEAD, following.id)])
                raise RuntimeError("the listener is broken")

        agent.dependencies = replace(agent.dependencies, listener=fail_at_the_end)
        await machines.begun(process)
        await machines.drive(process)
        assert (await agent.store.tree("t1")).ends == {}
        assert await ends(process) == ["success"]


def overloaded(_: SampleRequest) -> str:
    raise ModelError("The model is overloaded.")


async def test_a_stop_does_not_interrupt_the_write_of_a_failure(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(url, overloaded)
    async with machines.process() as process:
        store: Any = process.agent.store
        end_turn = store.end_turn

        async def stopped(*given: Any) -> None:
            task = current_turn.get().task
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            await end_turn(*given)

        monkeypatch.setattr(store, "end_turn", stopped)
        await machines.begun(process)
        await machines.drive(process)
        tree = await process.agent.store.tree("t1")
        assert [each.error for each in tree.ends.values()] == ["The model is overloaded."]
        assert (await events_of(process))[-1]["type"] == "RUN_ERROR"
        assert await open_runs(machines) == []


# -- leases, with different clocks -------------------------------------------------------------


async def claimed(due: DueWork, clock: ManualClock, until: float) -> list[str]:
    """Return the threads whose runs this process may take at a time."""
    clock.advance(until - clock.now())
    return [wake.call for wake in await due.claim()]


async def test_a_process_whose_clock_is_behind_keeps_its_run() -> None:
    events, clock, renewed = open_run_events("memory:"), ManualClock(1_000.0), 0.0
    due = DueWork(events, clock)
    await put_turn(events, "t", running("r", "behind"))
    for _ in range(20):
        assert await events.renew("t", "behind", clock.now() - APART / 2 + SECONDS)
        assert await due.claim() == []
        renewed = clock.now()
        clock.advance(RENEWED_EVERY)
    before = renewed + SECONDS - 0.6
    assert await claimed(due, clock, before) == []  # the lease lasts until then by that clock
    assert await claimed(due, clock, renewed + SECONDS) == ["t"]
    turn = await events.turn("t")
    assert turn is not None
    assert (turn.state, turn.attempt) == (TurnState.READY, 1)
    await events.close()


async def test_a_run_is_taken_from_a_dead_process_when_its_lease_is_over() -> None:
    events, until = open_run_events("memory:"), 1_000.0 + SECONDS
    clock = ManualClock(until - SECONDS)
    due = DueWork(events, clock)
    await put_turn(events, "t", running("r", "dead", until))
    await put_turn(events, "long", running("r", "dead", until - APART - 2 * SECONDS))
    assert await claimed(due, clock, until - SECONDS) == ["long"]
    assert await events.move("long", TurnRecord("r", TurnState.READY, 0.0, attempt=1), None)
    assert await claimed(due, clock, until - 1) == []
    assert await claimed(due, clock, until) == ["t"]
    await events.close()


class Unwritten:
    """Run events that store nothing under a lease for too long."""

    def __init__(self, events: RunEvents) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        raise StoreError("The store cannot be reached.")


async def test_a_process_gives_its_run_up_when_events_are_stored_too_late() -> None:
    """The process must not hand the run over as if all its events were stored."""
    clock, events, lost = ManualClock(), open_run_events("memory:"), list[str]()
    unwritten: Any = Unwritten(events)
    log = ThreadLog(LogWriter(unwritten, clock), "t")
    right = ThreadLease(events, log, "t", clock)
    lease = await right.begin(QueuedTurn("r", b"{}"), lambda: lost.append("r"))
    assert lease is not None
    log.add(named("late"), lease=lease)
    async with clock.running(1.0):
        await log.flush()
    assert lost == ["r"]
    assert await right.hand_over(lease, is_called=True) == await right.open_run()
    assert await right.open_run() == TurnRecord("r", TurnState.READY, clock.now(), attempt=1)
    await events.close()


async def test_a_late_end_is_stored_unless_another_process_has_the_run() -> None:
    clock, events = ManualClock(), open_run_events("memory:")
    log = ThreadLog(LogWriter(events, clock), "t")
    right = ThreadLease(events, log, "t", clock)
    lease = await right.begin(QueuedTurn("r", b"{}"), lambda: None)
    assert lease is not None
    await lease.give_up()
    clock.advance(2 * SECONDS)
    log.add(named("late"), lease=lease)
    log.add(named("end"), lease=lease, ends=True)
    assert await right.open_run() is None
    assert await log.last() == 3
    await events.close()


class Unread:
    """Run events that cannot be followed at first."""

    def __init__(self, events: RunEvents) -> None:
        self._events = events
        self.has_failed = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def follow(self, run: str, after: int) -> Any:
        if self.has_failed.is_set():
            return self._events.follow(run, after)
        self.has_failed.set()
        raise StoreError("The store cannot be reached.")


async def test_a_waiter_for_a_stop_returns_after_a_read_of_the_events_has_failed() -> None:
    clock, events = ManualClock(), open_run_events("memory:")
    unread: Any = Unread(events)
    log = ThreadLog(LogWriter(unread, clock), "t")
    waiting = asyncio.ensure_future(ThreadLease(unread, log, "t", clock).asked_to_stop(0))
    await unread.has_failed.wait()
    await log.put(STOP)
    async with clock.running(1.0):
        await waiting
    await events.close()
