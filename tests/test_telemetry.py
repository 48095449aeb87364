"""OpenTelemetry receives one trace for all rounds of a call, without any values of the call."""

from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, tool
from anabranch._durable import CallEvent, CallRecord, CallService, Reaper, RoundRecord
from anabranch._engine import Journal
from anabranch.agents import Agent
from anabranch.chat import make_chat_app
from anabranch.mcp import Durability, create_server
from anabranch.stores import open_store
from anabranch.testing import ManualClock, MockModel
from anabranch.tool import Runtime
from tests.agents.memory import MemoryTrees
from tests.chat import web
from tests.telemetry import Collected

KEY = "a secret of at least thirty-two bytes"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "swordfish"


class Word(BaseModel):
    word: str


def reserve(what: str) -> str:
    return f"{what} reserved"


def release(what: str) -> None:
    """Undo ``reserve``."""


def cannot_release(what: str) -> None:
    raise RuntimeError(SECRET)


async def in_branch(ctx: BranchContext, word: str) -> str:
    return str(await ctx.step(reserve, word))


@tool
async def travel(ctx: BranchContext, where: str, fails: str = "") -> str:
    """Reserve, ask the user, sample, and reserve more in a branch."""
    undo = cannot_release if fails == "undo" else release
    await ctx.step(reserve, where, undo=undo)
    answer = await ctx.elicit(Word, f"The word for {where}?")
    assert isinstance(answer, Accepted)
    thought = await ctx.sample(f"What of {answer.content.word}?")
    value = await ctx.branch(in_branch, thought.text)
    if fails:
        raise ToolError(f"{SECRET} is wrong")
    return value


async def person(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"word": SECRET})


def server_of(**options: Any) -> Any:
    sampler = MockModel(lambda request: f"a {SECRET}")
    return create_server("s", [travel], keys=[KEY], sampler=sampler, **options)


async def call(server: Any, mode: str, fails: str = "", meta: Any = None) -> types.CallToolResult:
    async with Client(server, mode=mode, elicitation_callback=person) as client:
        return await client.call_tool("travel", {"where": SECRET, "fails": fails}, meta=meta)


def below(span: Any, parent: Any) -> bool:
    return bool(span.parent.span_id == parent.context.span_id)


@pytest.mark.parametrize("store", [None, "memory:"], ids=["no-store", "store"])
async def test_all_rounds_of_a_call_share_one_trace(
    collected: Collected, store: str | None
) -> None:
    opened = None if store is None else open_store(store)
    await call(server_of(store=opened), "2026-07-28")
    if opened is not None:
        await opened.close()
    whole = collected.one("call")
    assert {each.context.trace_id for each in collected.spans} == {whole.context.trace_id}
    first, second = collected.named("round")
    assert below(first, whole)
    assert below(second, whole)
    assert [each.attributes["anabranch.outcome"] for each in (first, second)] == [
        "asked",
        "returned",
    ]
    assert [each.attributes["anabranch.round"] for each in (first, second)] == ["1", "2"]
    asked, sampled = collected.named("ask")
    # The question's span lasts from the end of the first round to the answer in the second.
    assert below(asked, whole)
    assert asked.start_time <= asked.end_time <= second.start_time
    assert asked.attributes == {
        "anabranch.step.id": "travel/elicit.1",
        "anabranch.ask.kind": "elicit",
    }
    assert below(sampled, second)
    assert whole.attributes["gen_ai.tool.name"] == "travel"
    assert str(whole.attributes["anabranch.call.id"]).startswith("call_")
    one, inner = collected.named("step")
    assert below(one, first)  # the step of the first round does not run again in the second
    assert below(inner, collected.one("branch"))
    assert below(collected.one("branch"), second)


async def test_a_live_call_has_one_span(collected: Collected) -> None:
    await call(server_of(), "legacy")
    whole = collected.one("call")
    assert collected.named("round") == []
    assert [below(each, whole) for each in collected.named("ask")] == [True, True]
    assert collected.metric("round.duration") == {"returned": 1}


async def test_a_call_belongs_to_the_trace_of_its_client(collected: Collected) -> None:
    """The request's ``_meta`` has a ``traceparent``; later rounds link to their requests."""
    await call(server_of(), "2026-07-28", meta={"traceparent": PARENT})
    trace_id = int(PARENT.split("-")[1], 16)
    assert {each.context.trace_id for each in collected.spans} == {trace_id}
    first, second = collected.named("round")
    assert first.links == ()
    [link] = second.links
    assert link.context.trace_id == trace_id


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_parent_of_a_call_is_the_request_that_started_it(
    collected: Collected, mode: str
) -> None:
    await call(server_of(), mode)
    requests = [each for each in collected.of("mcp") if each.name == "tools/call travel"]
    served = [each for each in requests if each.kind is SpanKind.SERVER]
    assert below(collected.one("call"), served[0])


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("fails", ["", "body", "undo"])
async def test_a_span_has_no_values_of_the_call(
    collected: Collected, mode: str, fails: str
) -> None:
    result = await call(server_of(), mode, fails)
    assert result.is_error is bool(fails)
    assert SECRET not in collected.everything
    assert len(collected.spans) > 5


async def test_a_span_has_only_the_type_of_an_error(collected: Collected) -> None:
    await call(server_of(), "2026-07-28", "undo")
    last = collected.named("round")[-1]
    undo = collected.one("undo")
    assert (last.status.status_code, undo.status.status_code) == (StatusCode.ERROR,) * 2
    assert last.attributes["error.type"] == "ToolError"
    assert undo.attributes["error.type"] == "RuntimeError"
    assert last.events == undo.events == ()
    assert collected.metric("round.duration") == {"asked": 1, "failed": 1}
    assert collected.metric("undo.failures") == {"": 1}


async def test_rounds_and_tokens_are_counted_once(collected: Collected) -> None:
    await call(server_of(), "2026-07-28")
    assert collected.metric("round.duration") == {"asked": 1, "returned": 1}
    [tokens] = collected.metric("tokens").values()
    await call(server_of(), "legacy")
    assert collected.metric("tokens") == {"": 2 * tokens}
    assert collected.metric("undo.failures") == {}


async def test_an_unsampled_call_has_no_span_in_any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = Collected(monkeypatch, sampler=ParentBased(ALWAYS_OFF))
    await call(server_of(), "2026-07-28", "undo")
    assert collected.spans == []
    assert collected.metric("round.duration") == {"asked": 1, "failed": 1}
    assert collected.metric("undo.failures") == {"": 1}
    collected.close()


async def test_without_an_sdk_a_state_has_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    dumps = Journal.dumps

    def noted(journal: Journal) -> str:
        written.append(journal.trace)
        return dumps(journal)

    monkeypatch.setattr(Journal, "dumps", noted)
    await call(server_of(), "2026-07-28", meta={"traceparent": PARENT})
    assert written == [""]
    collected = Collected(monkeypatch)
    written.clear()
    await call(server_of(), "2026-07-28", meta={"traceparent": PARENT})
    collected.close()
    [state] = written
    assert state.startswith(PARENT[:35])


def test_a_journal_keeps_its_trace_and_old_journals_have_none() -> None:
    journal = Journal("call_1", 1.0)
    assert Journal.loads(journal.dumps()).trace == ""
    journal.trace = f"{PARENT} 1"
    assert Journal.loads(journal.dumps()).trace == f"{PARENT} 1"


async def test_the_open_calls_of_a_store_are_measured(collected: Collected) -> None:
    clock, store = ManualClock(), open_store("memory:")
    service = CallService(Runtime(clock=clock), Durability(store))
    reaper = Reaper(service, {})
    await reaper.expire()
    assert (collected.metric("calls.open"), collected.metric("calls.oldest")) == ({"": 0}, {"": 0})
    for name, age in (("one", 30.0), ("other", 50.0)):
        await store.begin(CallRecord(name, "travel", "{}", clock.now() - age, clock.now() + 100))
    await reaper.expire()
    assert collected.metric("calls.open") == {"": 2}
    assert collected.metric("calls.oldest") == {"": 50}
    assert collected.metric("questions.oldest") == {"": 0}
    asked, far = RoundRecord(0, "", asked=clock.now() - 20.0), clock.now() + 100
    await store.open_round("one", 0, "w", clock.now(), far)
    await store.end_round("one", asked, CallEvent.ASK, owner="w", deadline=far)
    await reaper.expire()
    assert collected.metric("questions.oldest") == {"": 20}
    await store.close()


# -- turns and wakes ---------------------------------------------------------------------------


async def test_the_parent_of_a_turn_is_its_wake_which_links_to_its_cause(
    collected: Collected,
) -> None:
    """The same holds if a request started the worker: the wake does not belong to that request's span."""
    app = make_chat_app(MemoryTrees(), web.model(), [web.reserve])
    transport = httpx2.ASGITransport(app)
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        app.router.lifespan_context(app),
    ):
        with collected.tracer("theirs").start_as_current_span("request") as request:
            events = await web.run(client, web.message("reserve"))
    assert events[-1]["outcome"]["type"] == "interrupt"
    wake, turn, call_ = collected.one("wake"), collected.one("turn"), collected.one("call")
    assert wake.parent is None
    [link] = wake.links
    assert link.context.span_id == request.get_span_context().span_id
    assert wake.attributes == {
        "gen_ai.tool.name": "anabranch.chat",
        "anabranch.wake.call": "t1",
        "anabranch.wake.turn": "r1/0",
    }
    assert turn.attributes == {"anabranch.thread.id": "t1", "anabranch.outcome": "asked"}
    assert (below(turn, wake), below(call_, turn)) == (True, True)


async def test_a_turn_and_its_tokens_are_reported(collected: Collected) -> None:
    agent = Agent(MemoryTrees(), MockModel(lambda _: f"a {SECRET}"))
    thread = await agent.begin()
    await agent.say(thread.id, SECRET)
    assert collected.one("turn").attributes["anabranch.outcome"] == "returned"
    assert set(collected.metric("turn.tokens")) == {"input", "output"}
    assert SECRET not in collected.everything


async def test_a_failed_turn_is_reported_with_the_type_of_its_error(collected: Collected) -> None:
    def fail(_: object) -> str:
        raise ValueError(SECRET)

    agent = Agent(MemoryTrees(), MockModel(fail))
    thread = await agent.begin()
    with pytest.raises(ValueError, match=SECRET):
        await agent.say(thread.id, "hello")
    turn = collected.one("turn")
    assert turn.attributes["anabranch.outcome"] == "failed"
    assert turn.attributes["error.type"] == "ValueError"
    assert SECRET not in collected.everything
