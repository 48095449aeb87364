"""Deadlines of questions: every page shows the deadline, and a later answer gets the status "gone"."""

import json
from datetime import datetime
from typing import Any

import httpx2
import pytest

from anabranch import BranchContext, Capabilities, Limits, tool
from anabranch._asking import Absent
from anabranch.agents import Agent, RemoteTools
from anabranch.chat import Session, enter
from anabranch.messages import SampleRequest
from anabranch.testing import ManualClock, MockModel
from anabranch.testing import calls as calling
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.sleepers import DAY, seat
from tests.chat.web import SEAT, browsing, message, model, reserve, resume, run
from tests.diary import DONE
from tests.durable.stores import Modelled
from tests.mcp.harness import serving

pytestmark = pytest.mark.usefixtures("nothing_done")
CONTENT = {"row": 7}


@tool(elicits=[SEAT], limits=Limits(timeout=60.0))
async def brief(ctx: BranchContext) -> str:
    """Ask for a seat within a minute."""
    return (await ctx.elicit(SEAT, "Which seat?")).action


async def asked(client: httpx2.AsyncClient, said: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let a tool ask a question; return its interrupt, and the pending questions."""
    events = await run(client, message(said))
    [interrupt] = events[-1]["outcome"]["interrupts"]
    [question] = (await client.get("/threads/t1/pending")).json()
    return interrupt, question


async def refusals(client: httpx2.AsyncClient, question: str) -> list[tuple[int, str, str]]:
    """Answer in both ways; return status, reason and sentence of each reply."""
    answer = {"interrupt_id": question, "action": "accept", "content": CONTENT}
    entry = {"interruptId": question, "status": "resolved", "payload": CONTENT}
    replies = [
        await client.post("/threads/t1/answers", json=answer),
        await client.post("/agui", json=resume(entry)),
    ]
    return [(each.status_code, each.json()["reason"], each.json()["error"]) for each in replies]


@pytest.mark.parametrize(("said", "seconds"), [("/reserve", DAY), ("/seat", DAY), ("/brief", 60.0)])
async def test_a_question_states_its_deadline(said: str, seconds: float) -> None:
    clock = ManualClock()
    tools, until = [reserve, seat, brief], clock.now() + seconds
    async with browsing(tools=tools, calls=Modelled(), clock=clock) as client:
        interrupt, question = await asked(client, said)
        assert question["expires_at"] == until
        assert datetime.fromisoformat(interrupt["expiresAt"]).timestamp() == until
        clock.advance(seconds - 1.0)
        answer = {"interrupt_id": question["interrupt_id"], "action": "accept", "content": CONTENT}
        assert (await client.post("/threads/t1/answers", json=answer)).status_code == 200


@pytest.mark.parametrize(
    ("said", "seconds", "why"),
    [
        ("/reserve", DAY, "expired"),
        ("/brief", 60.0, "expired"),
        ("/seat", DAY, "The time for an answer is over"),
    ],
)
async def test_every_answer_after_the_deadline_gets_gone(
    said: str, seconds: float, why: str
) -> None:
    clock = ManualClock()
    tools = [reserve, seat, brief]
    async with browsing(tools=tools, calls=Modelled(), clock=clock) as client:
        interrupt, _ = await asked(client, said)
        clock.advance(seconds)
        for status, reason, error in await refusals(client, interrupt["id"]):
            assert (status, reason, why in error) == (410, "expired", True)


async def test_an_answer_gets_gone_when_its_tool_has_continued() -> None:
    clock = ManualClock()
    async with browsing(tools=[seat], calls=Modelled(), clock=clock) as client:
        interrupt, _ = await asked(client, "/seat")
        seen = (await client.get("/threads/t1/tree")).json()["position"]
        clock.advance(DAY)
        async with client.stream("GET", f"/threads/t1/events?after={seen}") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["type"] == "RUN_FINISHED":
                    break
        for status, reason, error in await refusals(client, interrupt["id"]):
            assert (status, reason) == (410, "expired")
            assert "The time for an answer is over" in error


async def test_a_question_of_another_server_has_the_deadline_of_its_call() -> None:
    clock = ManualClock()
    options: dict[str, Any] = {"clock": clock, "tool_limits": Limits(timeout=60.0)}
    async with (
        RemoteTools(serving(reserve)) as remote,
        browsing(tools=[remote], **options) as client,
    ):
        interrupt, question = await asked(client, "/reserve")
        until = clock.now() + 60.0
        assert (question["expires_at"], question["continues_at"]) == (until, until)
        assert datetime.fromisoformat(interrupt["expiresAt"]).timestamp() == until
        seen = (await client.get("/threads/t1/tree")).json()["position"]
        clock.advance(60.0)
        for status, reason, _ in await refusals(client, interrupt["id"]):
            assert (status, reason) == (410, "expired")
        async with client.stream("GET", f"/threads/t1/events?after={seen}") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: ") and json.loads(line[6:])["type"] == "RUN_FINISHED":
                    break
        tree = (await client.get("/threads/t1/tree")).json()
        assert "has not ended within 60 s" in str(tree["nodes"])


async def test_an_expired_question_gets_gone_on_the_calls_page() -> None:
    clock = ManualClock()
    options: dict[str, Any] = {"recorded_calls": "values", "calls": Modelled(), "clock": clock}
    async with browsing(tools=[reserve], **options) as client:
        await asked(client, "/reserve")
        [call] = (await client.get("/calls")).json()["calls"]
        path = f"/calls/{call['id']}"
        [step_id] = (await client.get(path)).json()["waits_for"]
        answer = {"step_id": step_id, "action": "accept", "content": CONTENT}
        response = await client.post(f"{path}/answers", json=answer)
        assert (response.status_code, response.json()["reason"]) == (409, "open")
        clock.advance(DAY)
        response = await client.post(f"{path}/answers", json=answer)
        assert (response.status_code, response.json()["reason"]) == (410, "expired")


async def test_a_terminal_refuses_an_answer_after_the_deadline() -> None:
    """The question was asked without a user present; a user is present now, a day too late."""
    clock, trees, calls = ManualClock(), MemoryTrees(), Modelled()
    options: dict[str, Any] = {"tools": [seat], "calls": calls, "clock": clock}
    options["capabilities"] = Capabilities()
    agent = Agent(trees, MockModel(sit), **options)
    thread = await agent.begin()
    question = await agent.say(thread.id, "seat")
    clock.advance(DAY)
    chat = Session(Agent(trees, MockModel(sit), user=Absent(), **options), thread_id=thread.id)
    await chat.start()
    refused, after = await enter(chat, "/answer row=7")
    assert (refused.type, refused.content) == (
        "error",
        "The time for an answer is over: the tool continues without an answer.",
    )
    assert (after.type, after.content) == ("message", "Done.")
    tree = await trees.tree(thread.id)
    assert len([each for each in tree.nodes if each.kind == "answer"]) == 1
    assert (question.kind, DONE) == ("question", ["held", "any row"])


async def test_an_answer_at_a_terminal_to_an_ended_call_runs_no_turn() -> None:
    clock, trees = ManualClock(), MemoryTrees()
    options: dict[str, Any] = {"tools": [reserve], "calls": Modelled(), "clock": clock}
    options["capabilities"] = Capabilities()
    agent = Agent(trees, model(), **options)
    thread = await agent.begin()
    await agent.say(thread.id, "reserve")
    clock.advance(DAY)
    chat = Session(Agent(trees, model(), user=Absent(), **options), thread_id=thread.id)
    await chat.start()
    [refused] = await enter(chat, "/answer row=7")
    assert (refused.type, "its call has ended" in refused.content) == ("error", True)


def sit(request: SampleRequest) -> Any:
    return calling(("use_1", "seat", {})) if heard(request) == "seat" else "Done."
