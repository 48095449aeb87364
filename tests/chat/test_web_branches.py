"""What an AG-UI client relies on when a model forks itself: a run that has ended has nothing open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf
from anabranch.chat._web.event_mapping import BRANCH
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard
from tests.chat.web import browsing, message, reserve, resume, run

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
    """What is open at the end of a run, each begun once at a time."""
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
    """Compare in branches."""
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
