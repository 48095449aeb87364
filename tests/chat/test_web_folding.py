"""A folded branch as users see it: its description, its conclusion, and that it waits for the user."""

from typing import Any

from anabranch.agents import BranchSelf, Folding
from anabranch.messages import SampleRequest
from anabranch.testing import MockModel, calls
from anabranch.tree import Tree, draw, to_markdown, to_mermaid
from tests.agents.memory import MemoryTrees
from tests.chat.web import browsing, message, reserve, resume, run
from tests.folding.harness import heard

FOR_THE_MODEL = [
    "branch_return",
    "Do this subtask",
    "(branch br_",
    "The secret plan",
    "no more tools",
]
TASK = {"description": "Find a seat", "prompt": "The secret plan."}


def folding(request: SampleRequest) -> Any:
    said = heard(request)
    if said == "fold":
        return calls(("f", "branch_create", TASK))
    if "(branch br_" in said:
        return calls(("u", "reserve", {}))
    if said.startswith(("Row", "(forced")):
        return calls(("r", "branch_return", {"message": "Row 3 it is."}))
    return f"Outside: {said}"


async def tree_of(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/threads/t1/tree")).json()
    return found


def branches_in(exported: dict[str, Any]) -> list[dict[str, Any]]:
    return [node["branch"] for node in exported["nodes"] if node["kind"] == "branch"]


def answer_to(interrupt: dict[str, Any]) -> dict[str, Any]:
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
    return resume(entry)


async def test_a_branch_that_waits_for_the_user_shows_it_everywhere() -> None:
    """Excludes a branch that looks ended because no process works on it."""
    async with browsing(tools=[reserve, Folding()], replies=MockModel(folding)) as client:
        events = await run(client, message("fold"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        [start] = [n for n in (await tree_of(client))["nodes"] if n["kind"] == "branch"]
        [begun] = [event for event in events if event["type"] == "SUBAGENT_STARTED"]
        assert (begun["description"], begun["subagentRunId"]) == ("Find a seat", start["id"])
        assert interrupt["subagentRunId"] == start["id"]
        assert interrupt["metadata"]["branch"] == {"id": start["id"], "description": "Find a seat"}
        [ended] = [event for event in events if event["type"] == "SUBAGENT_FINISHED"]
        assert ended["outcome"] == {"type": "suspended", "interruptIds": [interrupt["id"]]}
        assert ended["metadata"] == {"state": "waits for you"}
        [pending] = (await client.get("/threads/t1/pending")).json()
        assert pending["branch"] == {"id": start["id"], "description": "Find a seat"}
        [branch] = branches_in(await tree_of(client))
        assert branch == {
            "description": "Find a seat",
            "state": "waits for you",
            "conclusion": None,
        }

        await run(client, answer_to(interrupt))
        [branch] = branches_in(await tree_of(client))
    assert branch == {"description": "Find a seat", "state": "done", "conclusion": "Row 3 it is."}


async def test_a_question_outside_of_branches_names_none() -> None:
    async with browsing(tools=[reserve]) as client:
        events = await run(client, message("reserve"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        [pending] = (await client.get("/threads/t1/pending")).json()
    assert "subagentRunId" not in interrupt
    assert interrupt["metadata"]["branch"] is None
    assert pending["branch"] is None


def nested(request: SampleRequest) -> Any:
    said = heard(request)
    if said == "fold":
        return calls(("f", "branch_create", {"description": "outer", "prompt": "o"}))
    if ": outer" in said:
        prompts = {"prompts": ["take a seat", "say something"], "allow_work": True}
        return calls(("b", "branch_self", prompts))
    if said.endswith("take a seat"):
        return calls(("u", "reserve", {}))
    return "Done."


async def test_the_innermost_of_nested_branches_asks_and_the_outer_ones_wait() -> None:
    tools = [reserve, Folding(), BranchSelf()]
    async with browsing(tools=tools, replies=MockModel(nested)) as client:
        events = await run(client, message("fold"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        exported = await tree_of(client)
        found = {each["description"]: each["state"] for each in branches_in(exported)}
        assert list(found.values()) == ["waits for you", "waits for you", "done"]
        asking = next(n for n in exported["nodes"] if n["id"] == interrupt["subagentRunId"])
        assert "take a seat" in asking["branch"]["description"]
        await run(client, answer_to(interrupt))
        states = [each["state"] for each in branches_in(await tree_of(client))]
    assert states == ["done", "done", "done"]


async def test_text_for_the_model_is_not_shown_to_users() -> None:
    """The text is missing in the page's data, the terminal's tree, a diagram and an exported page;
    a provider gets it.
    """
    store = MemoryTrees()
    async with browsing(
        store=store, tools=[reserve, Folding()], replies=MockModel(folding)
    ) as client:
        events = await run(client, message("fold"))
        [interrupt] = events[-1]["outcome"]["interrupts"]
        await run(client, answer_to(interrupt))
        exported = await tree_of(client)
    tree: Tree = await store.tree("t1")
    [start] = [node for node in tree.nodes if node.kind == "branch"]
    assert "call branch_return" in start.text
    assert start.shown == "Find a seat"
    [shown] = [node["shown"] for node in exported["nodes"] if node["kind"] == "branch"]
    assert shown == "Find a seat"
    line = next(line for line in draw(tree) if "branch  " in line)
    section = to_markdown(tree).split("## b1")[1].split("**assistant**")[0]
    edge = next(line for line in to_mermaid(tree).splitlines() if "branch: " in line)
    for text in (line, section, edge):
        assert "Find a seat" in text
        assert not [each for each in FOR_THE_MODEL if each in text]


def hungry(request: SampleRequest) -> Any:
    said = heard(request)
    if said == "fold":
        return calls(("f", "branch_create", {**TASK, "budget": 300}))
    if said.startswith("(forced"):
        return calls(("r", "branch_return", {"message": "What I have."}))
    if "(branch br_" in said or said.startswith("There is no tool"):
        return calls(("u", "nothing", {}), text="word " * 50)
    return "Done."


async def test_a_forced_branch_shows_the_reason_and_not_the_request() -> None:
    async with browsing(tools=[Folding()], replies=MockModel(hungry)) as client:
        events = await run(client, message("fold"))
        exported = await tree_of(client)
    [forced] = [node for node in exported["nodes"] if node["kind"] == "user" and "shown" in node]
    assert "limit" in forced["shown"]
    assert not [each for each in FOR_THE_MODEL if each in forced["shown"]]
    [branch] = branches_in(exported)
    assert branch["state"] == "done"
    assert branch["conclusion"].startswith("What I have.")
    sent = [event["value"] for event in events if event.get("name") == "anabranch.node"]
    assert {"Find a seat", forced["shown"]} <= {each.get("shown") for each in sent}


def failing(request: SampleRequest) -> Any:
    if heard(request) == "fold":
        return calls(("f", "branch_create", TASK))
    if "(branch br_" in heard(request):
        raise ConnectionError
    return "Done."


async def test_a_branch_that_has_failed_is_not_done() -> None:
    async with browsing(tools=[Folding()], replies=MockModel(failing)) as client:
        await run(client, message("fold"))
        [branch] = branches_in(await tree_of(client))
    assert branch["state"] == "failed"
    assert "ended before it returned" in branch["conclusion"]
