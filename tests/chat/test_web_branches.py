"""A model forks itself in a chat: any process works on the one run, and the page shows its branches."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import BRANCH
from anabranch.chat._web.open_work import cancel
from anabranch.messages import SampleRequest, text_of
from anabranch.stores import open_run_events
from anabranch.testing import MockModel, calls
from tests.agents.asking import asks, deciding, forks, number, program
from tests.agents.harness import heard
from tests.chat.machines import Machines, check, check_branches, events_of, ids_of, open_runs
from tests.chat.web import browsing, message, on_both_databases, reserve, resume, run
from tests.diary import DONE, forget, note
from tests.randomised import times

pytestmark = pytest.mark.usefixtures("nothing_done")

OPENS = {"TEXT_MESSAGE_START": "messageId", "SUBAGENT_STARTED": "subagentRunId"}
CLOSES = {"TEXT_MESSAGE_END": "messageId", "SUBAGENT_FINISHED": "subagentRunId"}


def forking(request: Any) -> Any:
    said = heard(request)
    if said == "fork":
        prompts = ["take a seat", "say something"]
        return calls(("b", "branch_self", {"prompts": prompts, "allow_work": True}))
    if said.endswith("take a seat"):
        return calls(("u", "reserve", {}))
    return f"You said {said}." if said else "Done."


def left_open(events: Iterable[dict[str, Any]]) -> set[str]:
    """Return the branches that are open at the end of a run; each must start once at a time."""
    found: set[str] = set()
    for event in events:
        if event["type"] in OPENS:
            name = event[OPENS[event["type"]]]
            assert name not in found
            found.add(name)
        elif event["type"] in CLOSES:
            found.remove(event[CLOSES[event["type"]]])
    return found


async def test_branches_are_closed_at_a_question_and_opened_again() -> None:
    async with browsing(tools=[reserve, BranchSelf()], replies=MockModel(forking)) as client:
        first = await run(client, message("fork"))
        assert first[-1]["outcome"]["type"] == "interrupt"
        [interrupt] = first[-1]["outcome"]["interrupts"]
        assert left_open(first) == set()
        ends = [event for event in first if event["type"] == "SUBAGENT_FINISHED"]
        assert [event["outcome"]["type"] for event in ends] == ["success", "suspended"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        second = await run(client, resume(entry))
    assert second[-1]["outcome"]["type"] == "success"
    assert left_open(second) == set()
    ends = [event for event in second if event["type"] == "SUBAGENT_FINISHED"]
    assert [event["outcome"]["type"] for event in ends] == ["success"]


async def inner(ctx: BranchContext, what: str) -> str:
    return (await ctx.sample(what)).text


@tool
async def compare(ctx: BranchContext) -> str:
    return " ".join(await ctx.gather(ctx.branch(inner, "a"), ctx.branch(inner, "b")))


async def test_branches_inside_a_tool_are_reported_as_they_open_and_end() -> None:
    async with browsing(tools=[compare], replies=MockModel(forking)) as client:
        events = await run(client, message("/compare"))
    reported = [event["value"] for event in events if event.get("name") == BRANCH]
    [call] = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    assert {each["toolCallId"] for each in reported} == {call}
    assert [each["open"] for each in reported].count(True) == 2
    for path in ("compare/inner#1", "compare/inner#2"):
        assert [each["open"] for each in reported if each["path"] == path] == [True, False]


# -- in any process ----------------------------------------------------------------------------


def branches_of(events: list[dict[str, Any]], kind: str) -> list[str | None]:
    """Return the branches that report nodes of a kind; ``None`` is the main one."""
    nodes = [each for each in events if each.get("name") == "anabranch.node"]
    return [each.get("subagentRunId") for each in nodes if each["value"]["kind"] == kind]


async def test_an_answer_belongs_to_its_branch_while_the_turn_works_in_another(url: str) -> None:
    continues = asyncio.Event()

    @tool
    async def wait(ctx: BranchContext) -> str:
        """Wait until the test has answered."""
        await ctx.log("info", "waiting")
        await continues.wait()
        return "waited"

    here = Machines(url, branching(one=asks("seat"), two=calls(("use", "wait", {}))))
    async with here.process(wait) as one, here.process(wait) as two:
        await here.begun(one)
        working = asyncio.create_task(two.advance(await here.engine.next("t1")))
        await until_reported(one, b"anabranch.notice")
        await until_reported(one, b'"kind":"question"')
        asked = await one.questions.open_in("t1")
        conversation = await one.find("t1", None)
        assert conversation is not None
        await conversation.answer({asked[0].interrupt_id: number(3)}, "r2")
        continues.set()
        await working
        events = await events_of(one)
        check(events, await one.agent.store.tree("t1"))
        [question] = branches_of(events, "question")
        assert question is not None
        assert branches_of(events, "answer") == [question]


async def test_an_answer_that_continues_a_turn_precedes_its_reopened_branch(url: str) -> None:
    here = Machines(url, branching(one=asks("seat")))
    async with here.process() as one:
        await here.begun(one)
        await here.drive(one)
        await here.answer_all(one)
        events = await events_of(one)
        check(events, await one.agent.store.tree("t1"))
        assert branches_of(events, "answer") == [None]


@tool
async def work(ctx: BranchContext) -> str:
    """Work until the call is stopped."""
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await ctx.step(asyncio.Event().wait, name="work")
    return "never"


@tool(name="work")
async def busy(ctx: BranchContext) -> str:
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await asyncio.Event().wait()
    return "never"


@tool(name="work")
async def done(ctx: BranchContext) -> str:
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    return "at last"


def branching(**replies: Any) -> Callable[[SampleRequest], Any]:
    """A model that opens two branches, one and two."""
    return deciding(go=forks("one", "two"), **{"one": "first", "two": "second", **replies})


async def until_reported(process: Conversations, part: bytes) -> None:
    """Return when the conversation has an event with this part."""
    found = await process.find("t1", None)
    assert found is not None
    async with aclosing(found.log.follow(0)) as following:
        async for _, events, _ in following:
            if any(part in event for event in events):
                return


async def outcomes(process: Conversations) -> list[str]:
    events = await events_of(process)
    return [each["outcome"]["type"] for each in events if each["type"] == "RUN_FINISHED"]


@on_both_databases
@pytest.mark.parametrize("seed", range(times(3, gate=1)))
async def test_any_process_continues_a_run_in_branches(url: str, seed: int) -> None:
    here = Machines(url, program(seed), seed)
    async with here.process() as one, here.process() as two:
        await here.begun(one)
        await here.drive(one, two)
        await here.answer_all(one, two)
        check(await events_of(two), await one.agent.store.tree("t1"))
        assert await one.agent.cut_off("t1") is None
        assert await open_runs(here) == []


@pytest.mark.parametrize("from_outside", [False, True], ids=["page", "command"])
async def test_a_stop_ends_all_branches_of_a_run(url: str, from_outside: bool) -> None:
    here = Machines(url, branching(one=calls(("use", "work", {}))))
    async with here.process(work) as one, here.process(work) as two:
        conversation = await here.begun(one)
        working = asyncio.create_task(two.advance(await here.engine.next("t1")))
        await until_reported(one, b"anabranch.notice")
        events = open_run_events(url)
        stop = cancel(events, "t1", here.clock) if from_outside else conversation.stop()
        assert await stop
        await working
        await events.close()
        assert DONE == ["begun", "not begun"]
        assert await outcomes(one) == ["cancelled"]
        tree = await one.agent.store.tree("t1")
        [held] = [each for each in tree.results.values() if each.tool_use_id == "fork"]
        shown = text_of(held.pending or held.content)
        assert "1/2 branches completed" in shown
        assert "Interrupted; nothing was recombined." in shown
        await here.drive(one, two)
        assert await open_runs(here) == []
        assert await outcomes(one) == ["cancelled"]


async def test_a_run_continues_in_another_process_when_its_process_ends_in_a_branch(
    url: str,
) -> None:
    here = Machines(url, branching(one=calls(("use", "work", {}))))
    async with here.process(busy) as one:
        await here.begun(one)
        working = asyncio.create_task(one.advance(await here.engine.next("t1")))
        await until_reported(one, b"anabranch.notice")
        one.agent.suspend()
        working.cancel()
        await asyncio.wait([working])
    assert DONE == ["begun"]
    assert await open_runs(here) == [("waiting", 1)]
    async with here.process(done) as two:
        await here.engine.look(two)
        await here.drive(two)
        assert await outcomes(two) == ["success"]
        events, tree = await events_of(two), await two.agent.store.tree("t1")
    check_branches(events)
    assert sorted(ids_of(events, "anabranch.node")) == sorted(node.id for node in tree.nodes)
    assert len(ids_of(events, "anabranch.notice")) == 1
    assert DONE == ["begun"]
