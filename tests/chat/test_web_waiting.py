"""Waiting work in the store: several questions, samples, turns without a process, expired calls."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from anabranch import Accepted, BranchContext, Capabilities, Elicitation, ElicitResult, tool
from anabranch.agents import Agent, AgentTool, CalledTool
from anabranch.chat import Plugin, PluginRequest, make_plugin
from anabranch.errors import ConcurrentElicitError, ElicitInBranchError
from anabranch.messages import ElicitReply
from anabranch.testing import MockModel, calls
from anabranch.tool import Tool
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.web import SEAT, Seat, browsing, message, reserve, resume, run
from tests.durable.stores import Modelled

LEFT, RIGHT = Elicitation("left", Seat), Elicitation("right", Seat)


async def row(ctx: BranchContext, elicitation: Elicitation[Seat]) -> str:
    try:
        answer = await ctx.elicit(elicitation, f"{elicitation.key}?")
    except (ConcurrentElicitError, ElicitInBranchError) as error:
        return f"{type(error).__name__}: {error}"
    return str(answer.content.row) if isinstance(answer, Accepted) else answer.action


@tool(elicits=[LEFT, RIGHT])
async def both(ctx: BranchContext, branches: bool = True) -> list[str]:
    if branches:
        left, right = ctx.branch(row, LEFT), ctx.branch(row, RIGHT)
        return list(await ctx.gather(left, right))
    return list(await ctx.gather(row(ctx, LEFT), row(ctx, RIGHT)))


def decide(request: Any) -> Any:
    said = heard(request)
    if said in {"branches", "strands"}:
        return calls(("use_1", "both", {"branches": said == "branches"}))
    return calls(("use_1", said, {})) if said == "ponder" else "Done."


def interrupts(events: list[dict[str, Any]]) -> dict[str, str]:
    outcome = events[-1]["outcome"]
    return {each["message"]: each["id"] for each in outcome.get("interrupts", [])}


def result(events: list[dict[str, Any]]) -> str:
    [found] = [each["content"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    return str(found)


def accept(interrupt: str, row: int) -> dict[str, Any]:
    return {"interruptId": interrupt, "status": "resolved", "payload": {"row": row}}


async def test_a_run_ends_with_all_questions_and_a_resume_may_answer_some() -> None:
    async with browsing(tools=[both], replies=MockModel(decide)) as client:
        asked = interrupts(await run(client, message("branches")))
        assert list(asked) == ["left?", "right?"]
        some = await run(client, resume(accept(asked["right?"], 2)))
        assert interrupts(some) == {"left?": asked["left?"]}
        [pending] = (await client.get("/threads/t1/pending")).json()
        assert pending["interrupt_id"] == asked["left?"]
        entries = [accept(asked["right?"], 2), accept(asked["left?"], 1)]
        assert '"1"' in result(await run(client, resume(*entries, run="r3")))


async def test_answers_of_which_one_does_not_fit_are_all_refused() -> None:
    async with browsing(tools=[both], replies=MockModel(decide)) as client:
        asked = interrupts(await run(client, message("branches")))
        entries = [accept(asked["left?"], 1), accept(asked["right?"], 99)]
        assert (await client.post("/agui", json=resume(*entries))).status_code == 422
        assert len((await client.get("/threads/t1/pending")).json()) == 2


async def test_an_interrupted_turn_continues_by_itself() -> None:
    """Its process died after it had acknowledged the last answer."""
    trees, store, model = MemoryTrees(), Modelled(), MockModel(decide)
    agent = Agent(trees, model, tools=[both], capabilities=Capabilities(), calls=store)
    thread = await agent.begin()
    for question in await agent.open_questions(await agent.say(thread.id, "branches")):
        reply = ElicitReply(action="accept", content={"row": 1})
        await agent.add_answer(question.id, reply)
    ended = asyncio.Event()

    def reply_last(request: Any) -> Any:
        ended.set()
        return decide(request)

    async with browsing(
        store=trees, tools=[both], replies=MockModel(reply_last), calls=store
    ) as client:
        await ended.wait()
        assert (await client.get(f"/threads/{thread.id}/pending")).json() == []


# -- the policy of a plugin ----------------------------------------------------------------------


async def never(request: PluginRequest[Seat]) -> ElicitResult[Seat]:
    raise AssertionError(f"the page answers {request}")


def plugin(
    *, concurrent_elicits: bool = False, elicits_in_branches: bool = False
) -> Plugin[list[str]]:
    builder = make_plugin(
        both, concurrent_elicits=concurrent_elicits, elicits_in_branches=elicits_in_branches
    )
    return builder.on(LEFT, never).on(RIGHT, never).build()


@pytest.mark.parametrize(
    ("asks", "policy", "error"),
    [
        ("branches", {}, "ElicitInBranchError"),
        ("branches", {"concurrent_elicits": True}, "ElicitInBranchError"),
        ("strands", {}, "ConcurrentElicitError"),
        ("strands", {"elicits_in_branches": True}, "ConcurrentElicitError"),
        ("branches", {"elicits_in_branches": True}, "ConcurrentElicitError"),
    ],
    ids=["branches", "branches-1", "strands", "strands-1", "branches-2"],
)
async def test_a_plugin_asks_one_question_at_a_time_and_not_in_branches(
    asks: str, policy: dict[str, bool], error: str
) -> None:
    async with browsing(tools=[plugin(**policy)], replies=MockModel(decide)) as client:
        first = await run(client, message(asks))
        entries = [accept(each, 1) for each in interrupts(first).values()]
        assert len(entries) == (error == "ConcurrentElicitError")
        last = await run(client, resume(*entries)) if entries else first
        assert error in result(last)


async def test_an_application_may_forbid_names_that_a_plugin_allows() -> None:
    allowed = plugin(concurrent_elicits=True, elicits_in_branches=True)
    forbidden = Capabilities(elicits_in_branches=False)
    model = MockModel(decide)
    async with browsing(tools=[allowed], replies=model, capabilities=forbidden) as client:
        assert "ElicitInBranchError" in result(await run(client, message("branches")))


@pytest.mark.parametrize("asks", ["branches", "strands"])
async def test_a_plugin_may_ask_several_questions_in_branches(asks: str) -> None:
    allowed = plugin(concurrent_elicits=True, elicits_in_branches=True)
    async with browsing(tools=[allowed], replies=MockModel(decide)) as client:
        asked = interrupts(await run(client, message(asks)))
        entries = [accept(asked["left?"], 1), accept(asked["right?"], 2)]
        assert result(await run(client, resume(*entries))).split() == ["[", '"1",', '"2"', "]"]


# -- tools that change while they wait -------------------------------------------------------------


class Changing:
    """A source of one tool, which may be replaced later."""

    def __init__(self, now: Tool[Any]) -> None:
        self.now = now

    def offered_tools(self, taken: Collection[str], /) -> Sequence[AgentTool]:
        del taken
        return [CalledTool(self.now)]


@tool(name="reserve", elicits=[SEAT])
async def reserve_by_number(ctx: BranchContext, flight: int) -> str:
    return (await ctx.elicit(SEAT, "Which seat?", context={"plane": "A320"})).action


async def test_a_question_is_shown_though_its_tool_has_other_parameters_now() -> None:
    source = Changing(reserve)
    async with browsing(tools=[source]) as client:
        await run(client, message("/reserve flight=AB1"))
        [before] = (await client.get("/threads/t1/pending")).json()
        source.now = reserve_by_number
        response = await client.get("/threads/t1/pending")
        assert (response.status_code, response.json()) == (200, [before])
