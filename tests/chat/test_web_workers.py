"""Any process can work on a stored run, and takes over a run that another worker has left."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from anabranch import BranchContext, tool
from anabranch._aio import SystemClock, pause
from anabranch.agents import Agent, ContextEntry, FrontEnd
from anabranch.chat import make_chat_app
from anabranch.chat._web.run_input import HEAD, Message, input_in, started
from anabranch.chat._web.run_work import GIVEN_UP, MOST_ATTEMPTS
from anabranch.engines import InProcessEngine
from anabranch.messages import ToolSpec
from anabranch.stores import open_run_events, open_tree_store
from anabranch.testing import MockModel, calls
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.shared_runs import Held, accepted, die, ended, process, until_said
from tests.chat.web import message, reserve, run, types_of
from tests.suites.turn_samples import put_turn, running


def model() -> MockModel:
    def reply(request: Any) -> Any:
        said = heard(request)
        if said in {"reserve", "work"}:
            return calls(("use_1", said, {}))
        return f"You said {said}." if said else "Done."

    return MockModel(reply)


def said(events: list[dict[str, Any]]) -> str:
    return "".join(each.get("delta", "") for each in events)


@asynccontextmanager
async def died(url: str, run_id: str, attempt: int = 0) -> AsyncGenerator[Any]:
    """Return the events of a thread whose worker died over a run that waited for it."""
    events = open_run_events(url)
    await die(events, run_id, attempt)
    yield events
    await events.close()


async def test_a_reply_that_was_cut_off_is_given_again(url: str) -> None:
    """Its process died while the model wrote: the page drops the text that it had shown."""
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
    async with died(url, "r1") as events:
        begun = b'{"type":"TEXT_MESSAGE_START","messageId":"after-x","role":"assistant"}'
        part = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"after-x","delta":"You "}'
        await events.append("t1", [begun, part], at=1e12)  # without old events
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


async def test_a_run_continues_in_another_worker_when_its_worker_ends(url: str) -> None:
    """The incomplete reply is not stored: the next worker asks the model again."""
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


async def test_a_run_over_which_many_processes_died_is_given_up(url: str) -> None:
    async with process(url, concurrency=None) as front:
        await accepted(front, message("hello"))
    async with died(url, "r1", MOST_ATTEMPTS - 1):
        pass
    async with process(url, replies=model()) as worker:
        assert (await ended(worker))[-1]["message"] == GIVEN_UP


@tool
async def work(ctx: BranchContext) -> str:
    return "done"


async def test_tools_that_were_cut_off_run_in_another_process(url: str) -> None:
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
        assert (await ended(worker))[-1]["type"] == "RUN_FINISHED"


async def test_a_run_that_was_never_stored_releases_its_thread(url: str) -> None:
    """Its process died before the run had started, when the process had the thread already."""
    engine = (
        InProcessEngine()
    )  # of both: an engine without workers would lose the wake of the dead run
    async with process(url, engine=engine, concurrency=None) as front:
        await front.post("/threads", json={"id": "t1"})
        events = open_run_events(url)
        await put_turn(events, "t1", running("r1", "dead", 1.0))
        async with process(url, engine=engine, replies=model()) as worker:
            while await events.turn("t1"):
                await pause(SystemClock(), 0.05)  # the worker needs the processor
            assert said(await run(worker, message("hello"))) == "You said hello."
        await events.close()


@pytest.mark.parametrize("at", [HEAD, None, "node_1"], ids=["head", "root", "node"])
def test_a_message_and_the_front_end_are_the_input_of_their_run(at: Any) -> None:
    """Any process can therefore work on the run."""
    given, context = Message("hello\nthere", at), ContextEntry(description="Month", value="March")
    front_end = FrontEnd(tools=(ToolSpec(name="paint", input_schema={}),), context=(context,))
    begun = started("t1", "r1", given, front_end).event
    assert input_in(begun) == (given, front_end)
    nothing = started("t1", "r2").event
    assert input_in(nothing) == (None, FrontEnd())


async def test_an_unreachable_engine_only_delays_runs(url: str) -> None:
    engine = InProcessEngine()
    async with process(url, engine=engine, concurrency=None) as front:
        await engine.close()
        await accepted(front, message("hello"))
    async with died(url, "r1"):
        pass
    async with process(url, tools=[reserve], replies=model()) as worker:
        assert said(await ended(worker)) == "You said hello."


async def test_a_run_that_waits_in_one_process_continues_in_another(url: str) -> None:
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
    """A mounted application has no lifespan of its own, and no run may wait for ever for a worker."""
    app = make_chat_app(MemoryTrees(), model())
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert said(await run(client, message("hello"))) == "You said hello."
