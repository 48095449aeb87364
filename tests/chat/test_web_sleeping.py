"""A sleeping tool of a chat is a row in the store: any process continues its run at the stored time."""

import asyncio
from contextlib import aclosing
from functools import partial

import pytest

from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.open_work import cancel
from anabranch.chat._web.run_input import RunTakenError
from anabranch.chat._web.thread_lease import BusyError
from anabranch.chat._web.upkeep import RETAINED
from anabranch.stores import open_run_events
from anabranch.tree import Thread
from tests.chat.sleepers import DAY, WEEK, Machines, ends_of, events_of
from tests.chat.web import on_both_databases
from tests.diary import DONE

pytestmark = pytest.mark.usefixtures("nothing_done")


async def until_both(conversation: Conversation) -> None:
    async with aclosing(conversation.log.follow(0)) as following:
        seen = b""
        async for _, events, _ in following:
            seen += b"".join(events)
            if b"anabranch.sleep" in seen and b"anabranch.notice" in seen:
                return


@on_both_databases
async def test_the_run_of_a_sleeping_tool_is_handed_over_until_its_time(url: str) -> None:
    machines = Machines(url)
    at = machines.clock.now() + WEEK
    async with machines.process() as process:
        conversation = await machines.begun(process, "remind")
        assert machines.engine.wakes[-1].not_before == at
        assert await conversation.is_running()
        assert conversation.is_idle
        assert await machines.work() == [("r1", "asleep", 0, at)]
        assert await process.backlog.counted(10) == (0, 0)
        with pytest.raises(BusyError):
            await conversation.say("more", "r2")
        sleeps = [
            e["value"] for e in await events_of(conversation) if e.get("name") == "anabranch.sleep"
        ]
        assert sleeps == [{"toolCallId": "use_remind", "until": at}]
    machines.clock.advance(WEEK)
    async with machines.process() as process:
        await process.advance(machines.engine.wakes[-1])
        conversation = await machines.open(process)
        assert await ends_of(conversation) == ["success"]
        assert not await conversation.is_running()
        await process.advance(machines.engine.wakes[-1])  # the same wake again
    assert DONE == ["milk", "woken"]


@on_both_databases
@pytest.mark.parametrize("is_stopped", [False, True], ids=["woken", "stopped"])
async def test_a_message_while_a_tool_sleeps_follows_when_the_tool_has_ended(
    url: str, is_stopped: bool
) -> None:
    """Any process may continue, even if the process that ended the run dies immediately."""
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await machines.begun(process, "remind")
        head = await process.agent.head("t1")
        for _ in range(2):
            await conversation.say("poll", "r2", at=head, may_wait=True)
        with pytest.raises(BusyError):
            await conversation.say("work", "r3", may_wait=True)
        with pytest.raises(RunTakenError):
            await conversation.say("work", "r2", may_wait=True)
        assert await ends_of(conversation) == []
    async with machines.process() as process:
        conversation = await machines.open(process)
        wake, stopping = machines.engine.wakes[-1], None
        if is_stopped:
            machines.engine.wakes.clear()
            stopping = asyncio.ensure_future(conversation.stop())
            wake = await machines.engine.next("t1")
        else:
            machines.clock.advance(WEEK)
        await process.advance(wake)
        first = "cancelled" if is_stopped else "success"
        assert stopping is None or await stopping
        assert await ends_of(conversation) == [first]
        assert await machines.work() == [("r2", "asleep", 0, machines.clock.now() + 3600.0)]
        path = (await process.agent.store.path(str(await process.agent.head("t1")))).nodes
        assert [node.text for node in path if node.kind == "user"] == ["remind", "poll"]
    assert ["milk", "not milk" if is_stopped else "woken", "first"] == DONE


async def test_a_run_outlives_its_old_events(url: str) -> None:
    """Events are pruned a week after a thread's last event, unless a run is open in the thread."""
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await machines.begun(process, "/remind days=30")
        machines.clock.advance(RETAINED + 1.0)
        await process.upkeep.prune()
        assert len(await events_of(conversation)) > 1
        machines.clock.advance(30 * DAY)
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["success"]
    assert DONE == ["milk", "woken"]


@pytest.mark.parametrize("by_command", [False, True], ids=["page", "command"])
async def test_effects_of_a_run_stopped_asleep_are_undone(url: str, by_command: bool) -> None:
    """A worker undoes the effects, since the process that stops the run may have none of its tools."""
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await machines.begun(process, "remind")
        machines.clock.advance(DAY)
        machines.engine.wakes.clear()
        events = open_run_events(url)
        stop = partial(cancel, events, "t1", machines.clock) if by_command else conversation.stop
        stopping = asyncio.ensure_future(stop())
        while not machines.engine.wakes:  # until its run waits for a worker
            await machines.engine.look(process)
        await process.advance(machines.engine.wakes[-1])
        assert await stopping
        await events.close()
        assert DONE == ["milk", "not milk"]
        assert await ends_of(conversation) == ["cancelled"]
        assert not await conversation.is_running()
        machines.clock.advance(WEEK)
        for wake in list(machines.engine.wakes):
            await process.advance(wake)
        assert await ends_of(conversation) == ["cancelled"]
        results = [e for e in await events_of(conversation) if e["type"] == "TOOL_CALL_RESULT"]
        assert len(results) == 1
        await conversation.say("poll", "r2")
        await process.advance(machines.engine.wakes[-1])
    assert DONE == ["milk", "not milk", "first"]


async def test_a_sleeping_call_is_undone_if_the_run_stops_while_a_tool_works(url: str) -> None:
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await process.begin(Thread("t1", machines.clock.now()))
        assert conversation is not None
        await conversation.say("remind work", "r1")
        advancing = asyncio.ensure_future(process.advance(machines.engine.wakes[-1]))
        await until_both(conversation)
        assert await conversation.stop()
        await advancing
        assert sorted(DONE) == ["begun", "milk", "not begun", "not milk"]
        assert await ends_of(conversation) == ["cancelled"]
        machines.clock.advance(WEEK)
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["cancelled"]
