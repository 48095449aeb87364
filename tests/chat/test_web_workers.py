"""Runs are stored, and taken to their end by a worker, in whatever process; what a worker leaves, another takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from anabranch import BranchContext, tool
from anabranch._engine.clock import SystemClock, pause
from anabranch.agents import Agent
from anabranch.chat import make_chat_app
from anabranch.chat._web.branch_work import MOST_ATTEMPTS
from anabranch.chat._web.conversation import RUNS
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.log_writer import encoded
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.run_input import HEAD, Message, ends_of_all_open, message_in, started
from anabranch.chat._web.run_work import CUT_OFF, GIVEN_UP
from anabranch.engines import InProcessEngine, Wake
from anabranch.stores import open_run_events, open_tree_store
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.test_web_events import process
from tests.chat.test_web_processes import Held, until_said
from tests.chat.web import events_in, message, reserve, resume, run, types_of


def model() -> MockModel:
    def reply(request: Any) -> Any:
        said = heard(request)
        if said in {"reserve", "work"}:
            return calls(("use_1", said, {}))
        return f"You said {said}." if said else "Done."

    return MockModel(reply)


async def accepted(client: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    """Send a run to a process that does not work on it."""
    response = await client.post("/agui", json=body, headers={"Accept": "application/json"})
    assert response.status_code == 202, response.text


async def ended(client: httpx2.AsyncClient, thread: str = "t1") -> list[dict[str, Any]]:
    """Return the events of a thread, up to the first end of a run."""
    text = ""
    async with client.stream("GET", f"/threads/{thread}/events?after=0") as response:
        async for piece in response.aiter_text():
            text += piece
            events = events_in(text[: text.rfind("\n\n") + 1])
            if events and events[-1]["type"] in {"RUN_FINISHED", "RUN_ERROR"}:
                return events
    raise AssertionError(text)


def said(events: list[dict[str, Any]]) -> str:
    return "".join(each.get("delta", "") for each in events)


@asynccontextmanager
async def died(url: str, run_id: str, attempt: int = 0) -> AsyncGenerator[Any]:
    """The events of a thread whose worker has died over a run that waited for it."""
    events = open_run_events(url)
    dead = f"{run_id}/{attempt}.dead"
    assert await events.take_over("t1", f"{run_id}/0", dead, 1e12, 1.0)
    yield events
    await events.close()


async def test_another_process_works_on_what_one_accepts(url: str) -> None:
    engine = InProcessEngine()
    async with (
        process(url, engine=engine, concurrency=None) as front,
        process(url, engine=engine, replies=model()),
    ):
        asked = await run(front, message("reserve"))
        [interrupt] = asked[-1]["outcome"]["interrupts"]
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        events = await run(front, resume(entry))
    assert "Row 3 on AB1" in str(events)
    assert events[-1]["outcome"] == {"type": "success"}


async def test_a_run_waits_in_the_store_until_there_is_a_worker(url: str) -> None:
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
        assert (await front.get("/threads/t1/tree")).json()["running"] is True
        refused = await front.post("/agui", json=message("more", run="r2"))
        assert refused.status_code == 409
    async with died(url, "r1"):
        pass
    async with process(url, replies=model()) as worker:
        events = await ended(worker)
    assert said(events) == "You said hello."
    assert types_of(events)[-1] == "RUN_FINISHED"


async def test_a_reply_that_was_cut_off_is_given_again(url: str) -> None:
    """Its process died in mid-stream: the page drops what it had shown of it."""
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
    async with died(url, "r1") as events:
        begun = b'{"type":"TEXT_MESSAGE_START","messageId":"after-x","role":"assistant"}'
        part = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"after-x","delta":"You "}'
        await events.append("t1", [begun, part], at=1e12)  # no old ones
    async with process(url, replies=model()) as worker:
        shown = await ended(worker)
        nodes = (await worker.get("/threads/t1/tree")).json()["nodes"]
    assert [node["kind"] for node in nodes] == ["user", "assistant"]
    kinds = types_of(shown)
    assert kinds[:4] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ]
    assert (kinds.count("RUN_STARTED"), kinds.count("TEXT_MESSAGE_END")) == (1, 2)
    assert said(shown) == "You You said hello."


async def test_a_run_whose_worker_ends_goes_on_in_another(url: str) -> None:
    """What the model had said until then is not stored: it is asked again."""
    held = Held()
    async with process(url, replies=held.model()) as one:
        await accepted(one, message("hello"))
        await until_said(one)
    assert held.cancelled.is_set()
    async with process(url, replies=model()) as two:
        events = await ended(two)
        nodes = (await two.get("/threads/t1/tree")).json()["nodes"]
    assert [node["content"][0]["text"] for node in nodes] == ["hello", "You said hello."]
    assert types_of(events).count("RUN_STARTED") == 1


async def test_a_run_that_no_worker_has_taken_can_be_stopped(url: str) -> None:
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
        assert (await front.post("/threads/t1/stop", json={})).json() == {"stopped": True}
        assert (await ended(front))[-1]["outcome"] == {"type": "cancelled"}
        assert (await front.post("/threads/t1/stop", json={})).json() == {"stopped": False}


async def test_a_run_over_which_many_processes_died_is_given_up(url: str) -> None:
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
    async with died(url, "r1", MOST_ATTEMPTS - 1):
        pass
    async with process(url, replies=model()) as worker:
        assert (await ended(worker))[-1]["message"] == GIVEN_UP


@tool
async def work(ctx: BranchContext) -> str:
    """Work."""
    return "done"


async def test_tools_that_were_cut_off_do_not_run_again_without_a_store_of_calls(url: str) -> None:
    async with process(url, concurrency=None, tools=[work]) as front:
        await accepted(front, message("/work"))
    async with died(url, "r1"):
        trees = open_tree_store(url)
        agent = Agent(trees, model(), tools=[work])
        [put] = await agent.put("t1", [(None, "work")])
        use = calls(("use_1", "work", {})).content
        await agent.add([agent.dependencies.node("t1", put.id, "assistant", use)])
        await trees.close()
    async with process(url, replies=model(), tools=[work]) as worker:
        assert (await ended(worker))[-1]["message"] == CUT_OFF


async def test_a_wake_that_comes_late_or_for_no_thread_does_nothing() -> None:
    trees = open_tree_store("memory:")
    conversations = Conversations(trees, model())
    thread = await conversations.agent.begin()
    for call in (thread.id, thread.id, "none"):
        await conversations.advance(Wake(call, "r1", RUNS))
    assert await open_last(conversations, thread.id) == 0
    await trees.close()


async def open_last(conversations: Conversations, thread_id: str) -> int:
    found = await conversations.find(thread_id, None)
    assert found is not None
    return await found.log.last()


async def test_a_run_that_was_never_stored_makes_room(url: str) -> None:
    """Its process died before the run had begun, when it had the thread already."""
    async with process(url, concurrency=None) as front:
        await front.post("/threads", json={"id": "t1"})
        events = open_run_events(url)
        assert await events.lease("t1", "r1/0.dead", 0.0, 1.0)
        async with process(url, replies=model()) as worker:
            async with asyncio.timeout(120):
                while await events.holder("t1", 0.0):
                    await pause(SystemClock(), 0.05)  # the worker needs the processor
            assert said(await run(worker, message("hello"))) == "You said hello."
        await events.close()


@pytest.mark.parametrize(
    ("owner", "run"),
    [
        ("r1/0", OpenRun("r1")),
        ("a/b.c/2", OpenRun("a/b.c", 2)),
        ("a/b.c/2.token", OpenRun("a/b.c", 2, "token")),
        ("r1/0~1.2-a~", OpenRun("r1", version="1.2-a")),
        ("r1/0@1000.5@", OpenRun("r1", until=1000.5)),
        ("a@1@/0~1~@1e+22@", OpenRun("a@1@", version="1", until=1e22)),
        ("r1.token", OpenRun("r1", 0, "token")),
        ("a/b.token", OpenRun("a/b", 0, "token")),
    ],
    ids=["waits", "slashes", "worked-on", "pinned", "timed", "both", "older", "older-slash"],
)
def test_an_owner_names_its_run(owner: str, run: OpenRun) -> None:
    assert OpenRun.of(owner) == run


def test_a_run_whose_worker_is_gone_has_one_attempt_more() -> None:
    assert OpenRun("r1", 1, "dead").next == OpenRun("r1", 2)
    assert OpenRun("r1", 1).next == OpenRun("r1", 1)
    assert OpenRun("r1", until=5.0).next == OpenRun("r1", until=5.0)


@pytest.mark.parametrize("at", [HEAD, None, "node_1"], ids=["head", "root", "node"])
def test_a_message_is_the_input_of_its_run(at: Any) -> None:
    given = Message("hello\nthere", at)
    assert message_in(encoded(started("t1", "r1", given))) == given
    assert message_in(encoded(started("t1", "r2"))) is None


def test_only_what_is_open_is_ended() -> None:
    events = [
        {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
        {"type": "TEXT_MESSAGE_END", "messageId": "a"},
        {"type": "TEXT_MESSAGE_START", "messageId": "b", "role": "assistant"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "one", "name": "branch"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "two", "name": "branch"},
        {
            "type": "SUBAGENT_FINISHED",
            "subagentRunId": "one",
            "outcome": {"type": "success"},
        },
    ]
    ends = ends_of_all_open([json.dumps(each, separators=(",", ":")).encode() for each in events])
    assert [json.loads(encoded(each)) for each in ends] == [
        {"type": "TEXT_MESSAGE_END", "messageId": "b"},
        {
            "type": "SUBAGENT_FINISHED",
            "subagentRunId": "two",
            "outcome": {"type": "suspended"},
        },
    ]


async def test_the_engine_that_cannot_be_reached_costs_time_only(url: str) -> None:
    engine = InProcessEngine()
    async with process(url, engine=engine, concurrency=None) as front:
        await engine.close()
        await accepted(front, message("hello"))
    async with died(url, "r1"):
        pass
    async with process(url, tools=[reserve], replies=model()) as worker:
        assert said(await ended(worker)) == "You said hello."


class Counted:
    """Counts how often a lease is passed on."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self.passed_on = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def take_over(self, run: str, owner: str, other: str, now: float, until: float) -> bool:
        self.passed_on += owner != other
        return bool(await self._events.take_over(run, owner, other, now, until))

    async def take(self, *names: Any, **options: Any) -> Any:
        taken = await self._events.take(*names, **options)
        self.passed_on += taken is not None
        return taken


@pytest.mark.parametrize("own_engine", [True, False])
async def test_a_run_is_handed_over_only_where_another_process_may_take_it(
    url: str, monkeypatch: pytest.MonkeyPatch, own_engine: bool
) -> None:
    """A person waits for the first word: where it is known who works, nothing is asked of the store."""
    counted: list[Counted] = []

    def opened(store: Any) -> Any:
        counted.append(Counted(open_run_events(store)))
        return counted[-1]

    monkeypatch.setattr("anabranch.chat._web.conversations.open_run_events", opened)
    engine = None if own_engine else InProcessEngine()
    async with process(url, engine=engine, replies=model()) as one:
        events = await run(one, message("hello"))
    assert said(events) == "You said hello."
    assert counted[0].passed_on == (0 if own_engine else 2)


async def test_a_run_that_waits_in_its_process_for_a_turn_of_its_own_goes_on_in_another(
    url: str,
) -> None:
    held = Held()
    async with process(url, concurrency=1, replies=held.model()) as one:
        await accepted(one, message("hello"))
        await until_said(one)
        created = await one.post("/threads", json={"id": "t2"})
        assert created.status_code < 300
        await accepted(one, message("hello", run="r2", thread="t2"))
    async with process(url, replies=model()) as two:
        assert said(await ended(two, "t2")) == "You said hello."


async def test_an_application_without_a_lifespan_works_on_its_runs() -> None:
    """One that is mounted in another has none of its own, and nothing may wait for ever for a worker."""
    app = make_chat_app(MemoryTrees(), model())
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert said(await run(client, message("hello"))) == "You said hello."
