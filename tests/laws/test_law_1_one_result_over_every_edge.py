"""Law 1: one tool gives the same result over every edge, hot or cold, for any legal program.

Generated programs run over the direct edge, alive and replayed. They run over MCP in both eras,
with the real client, on the SDK's server and on FastMCP's. They run in turns of agents, with
another agent for each round, and by ``run_round``, where each round gets only the state of the
last. All runs must agree on the value or the error, the questions, the effects and undos, and the
notices.
"""

import json
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from anabranch import AnabranchError, Capabilities, Limits, run_tool
from anabranch._asking import Accepted, Cancelled, Declined
from anabranch._engine import Notice
from anabranch.agents import Agent, Event, ToolNoticed, TurnLimits, question_of, result_at
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, text_of
from anabranch.rounds import Asked, Question, Rounds
from anabranch.testing import MockClient, MockModel, SequentialIds, calls
from anabranch.tool import Runtime, Tool
from anabranch.tree import Node
from tests.agents.memory import MemoryTrees
from tests.durable.stores import Modelled
from tests.engine.clocks import Obliging
from tests.engine.impatience import shorten_grace
from tests.laws import programs as language
from tests.laws.programs import (
    BUG,
    Append,
    Ask,
    Attempt,
    Block,
    Branch,
    CallTool,
    Converse,
    Fail,
    Gather,
    Look,
    Sample,
    Step,
    World,
    Yield,
    as_tool,
    enter,
)
from tests.masking import with_any_id
from tests.mcp.one_tool import Host, on_fastmcp, on_sdk
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet", "short_grace")


@pytest.fixture(scope="module")
def short_grace() -> Generator[None]:
    """Shorten the grace period: many programs run a background task, and every round waits for it."""
    with pytest.MonkeyPatch.context() as patch:
        shorten_grace(patch)
        yield


@dataclass
class Seen:
    """The observable outcome of a program's run."""

    outcome: tuple[str, Any]
    effects: dict[str, list[str]]
    notices: dict[str, list[str]]
    asked: list[str]
    sampled: list[tuple[str, int]]


class Edge:
    """Runs programs over MCP, and records the notices and questions that the client receives."""

    def __init__(self) -> None:
        self.world = World(clock=Obliging())
        self.notices: list[str] = []
        self.asked: list[str] = []
        self.sampled: list[tuple[str, int]] = []
        self.runtime = Runtime(clock=self.world.clock, ids=SequentialIds())
        enter(self.world)

    def seen(self, outcome: tuple[str, Any]) -> Seen:
        return Seen(
            outcome,
            by_lane(self.world.effects),
            by_lane((notice.split(" ")[0], notice) for notice in self.notices),
            sorted(self.asked),
            sorted(self.sampled),
        )

    def answer(self, message: str) -> tuple[str, dict[str, Any] | None]:
        self.asked.append(message)
        if message.startswith("slow "):
            self.world.clock.advance(int(message.split(" ")[1]))
        return language.user(message)

    def reply(self, request: SampleRequest) -> list[dict[str, Any]]:
        prompt, results = language.prompt_and_results(request)
        self.sampled.append((f"{prompt} {results}", request.max_tokens))
        return language.model(request)


def by_lane(happened: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    lanes: dict[str, list[str]] = defaultdict(list)
    for lane, what in happened:
        lanes[lane].append(what)
    return dict(lanes)


async def directly(tool: Tool[Any], *, replay: bool) -> Seen:
    edge = Edge()

    def elicit(request: Any) -> Any:
        assert isinstance(request, ElicitRequest)
        action, content = edge.answer(request.message)
        ended = {"decline": Declined(), "cancel": Cancelled()}
        return ended.get(action) or Accepted(content)

    def sample(request: SampleRequest) -> Any:
        return {"content": edge.reply(request), "model": "m"}

    client = MockClient(samples=sample, elicits=elicit)
    try:
        value = await run_tool(
            tool, {}, client, replay=replay, clock=edge.world.clock, ids=SequentialIds()
        )
        outcome: tuple[str, Any] = ("value", json.loads(json.dumps(value)))
    except AnabranchError as error:
        outcome = ("error", str(error))
    except ValueError as error:
        if str(error) != BUG and not str(error).startswith("The key"):
            raise
        outcome = ("bug", None)
    edge.notices = [log.message for log in client.log_calls]
    edge.notices += [notified.message for notified in client.notify_calls]
    return edge.seen(outcome)


class OwnModel:
    """The model of a server; it answers within the same pass of the event loop."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    async def sample(self, request: SampleRequest) -> SampleReply:
        return SampleReply.model_validate({"content": self.edge.reply(request), "model": "m"})


async def over_mcp(tool: Tool[Any], mode: str, host: Host = on_sdk, *, own: bool = False) -> Seen:
    """Call the tool by an MCP client; ``own`` says that the server's model answers its samples."""
    edge = Edge()
    notices: list[str] = []

    async def elicit(context: object, params: Any) -> types.ElicitResult:
        action, content = edge.answer(params.message)
        return types.ElicitResult.model_validate({"action": action, "content": content})

    async def sample(context: object, params: types.CreateMessageRequestParams) -> Any:
        wire = params.model_dump(by_alias=True, mode="json", exclude={"tool_choice"})
        content = edge.reply(SampleRequest.model_validate(wire))
        return types.CreateMessageResultWithTools.model_validate(
            {"role": "assistant", "content": content, "model": "m"}
        )

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        edge.notices.append(str(params.data))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        notices.append(str(message))

    async with Client(
        host(tool, edge.runtime, OwnModel(edge) if own else None),
        mode=mode,
        elicitation_callback=elicit,
        sampling_callback=sample,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
        logging_callback=log,
        log_level="debug",
        input_required_max_rounds=1000,
    ) as client:
        result = await client.call_tool(tool.name, {}, progress_callback=on_progress)
    edge.notices += notices
    return edge.seen(outcome_of(result, tool.name))


def reply_to(edge: Edge, question: Node) -> ElicitReply:
    action, content = edge.answer(question_of(question).message)
    return ElicitReply.model_validate({"action": action, "content": content})


async def over_agents(tool: Tool[Any], *, stored: bool) -> Seen:
    """Call the tool in an agent's turn; another agent takes each round."""
    edge, trees = Edge(), MemoryTrees()

    def decide(request: SampleRequest) -> SampleReply:
        if not any(each.name == tool.name for each in request.tools or ()):
            return SampleReply.model_validate({"content": edge.reply(request), "model": "m"})
        results = [block for block in request.messages[-1].content if block.type == "tool_result"]
        return calls(text="Done.") if results else calls(("use", tool.name, {}))

    async def listen(event: Event) -> None:
        if isinstance(event, ToolNoticed):
            edge.notices.append(event.notice.message)

    store = Modelled() if stored else None

    def agent() -> Agent:
        return Agent(
            trees,
            MockModel(decide),
            tools=[tool],
            capabilities=Capabilities(),
            limits=TurnLimits(max_reply_tokens=10**9),
            listener=listen,
            clock=edge.world.clock,
            calls=store,
        )

    end = await agent().say((await agent().begin()).id, "Go")
    while open_now := await agent().open_questions(end):
        for question in open_now:
            end = await agent().answer(question.id, reply_to(edge, question))
    result = result_at(await trees.path(end.id), "use")
    assert result is not None
    text = text_of(result.content)
    if not result.is_error:
        return edge.seen(("value", json.loads(text)))
    is_bug = with_any_id(text) == f"Error executing tool {tool.name} (error ID)"
    return edge.seen(("bug", None) if is_bug else ("error", text))


async def by_rounds(tool: Tool[Any], *, own: bool, stored: bool) -> Seen:
    """Run each round from the JSON state of the last one, in a new ``Rounds``.

    Args:
        tool: the tool.
        own: whether the caller's model answers the samples; otherwise samples are questions.
        stored: whether a store keeps the calls.
    """
    edge, store = Edge(), Modelled() if stored else None

    async def note(notice: Notice) -> None:
        edge.notices.append(notice.message)

    async def next_round(**given: Any) -> Any:
        rounds = Rounds(
            keys=["a key that all of them share, and no one else"],
            store=store,
            ttl=10**9,  # program time passes faster than the lifetime of a state allows
            misfits="ask",
            clock=edge.world.clock,
            ids=edge.runtime.ids,
        )
        model = OwnModel(edge) if own else None
        return await rounds.run(tool, {}, sampler=model, on_notice=note, **given)

    try:
        ended = await next_round()
        while isinstance(ended, Asked):
            asked = Asked.from_json(json.loads(json.dumps(ended.to_json())))
            answers = {question.id: answer_to(edge, question) for question in asked.questions}
            if not answers and asked.until is not None:
                edge.world.clock.advance(asked.until - edge.world.clock.now())
            ended = await next_round(state=asked.state, answers=answers)
        outcome: tuple[str, Any] = ("value", json.loads(json.dumps(ended.value)))
    except AnabranchError as error:
        outcome = ("error", str(error))
    except ValueError as error:
        if str(error) != BUG and not str(error).startswith("The key"):
            raise
        outcome = ("bug", None)
    return edge.seen(outcome)


def answer_to(edge: Edge, question: Question) -> dict[str, Any]:
    if isinstance(question.request, SampleRequest):
        return {"content": edge.reply(question.request), "model": "m"}
    action, content = edge.answer(question.message)
    return {"action": action, "content": content}


def outcome_of(result: types.CallToolResult, name: str) -> tuple[str, Any]:
    text = "".join(block.text for block in result.content if isinstance(block, types.TextContent))
    if not result.is_error:
        # FastMCP derives no output schema from a list of anything, and sends no content for an
        # empty list.
        structured = result.structured_content or {"result": json.loads(text or "[]")}
        return "value", structured["result"]
    masked = (f"Error executing tool {name} (error ID)", f"Error calling tool {name!r} (error ID)")
    if with_any_id(text) in masked:
        return "bug", None
    return "error", text.removeprefix(f"Error executing tool {name}: ")


@examples(200, gate=60)
@given(language.programs)
async def test_a_tool_replayed_every_round_does_the_same_as_a_live_tool(program: Block) -> None:
    tool = as_tool(program)
    assert await directly(tool, replay=True) == await directly(tool, replay=False)


async def agree(tool: Tool[Any], alive: Seen) -> None:
    """Assert that every edge over MCP gives the same outcome as the run that stayed alive."""
    for host in (on_sdk, on_fastmcp):
        for mode in ("legacy", "2026-07-28"):
            assert await over_mcp(tool, mode, host) == alive


@examples(50, gate=10)
@given(language.programs)
async def test_all_edges_agree(program: Block) -> None:
    tool = as_tool(program)
    alive = await directly(tool, replay=False)
    assert await directly(tool, replay=True) == alive
    await agree(tool, alive)


FOUND: dict[str, Block] = {
    "a refusal names what was spent then, not what is spent by now": (
        Branch(
            (Attempt((Sample("schema"),)), Sample("prompt"), Attempt((Sample("messages"),))),
            limits=Limits(max_tokens=25),
        ),
        Ask("accept"),
    ),
    "a budget refuses those of several that it does not hold, and then holds more": (
        Branch(
            (
                Gather(((Attempt((Sample("prompt"),)),),) * 3, "branches"),
                Attempt((Sample("messages"),)),
                Gather(((Sample("messages"),),) * 2, "asyncio"),
            ),
            limits=Limits(max_tokens=60),
        ),
        Ask("accept"),
    ),
    "a value that cannot cross ends the call even if its error is caught": (
        Ask("accept"),
        Attempt((Step("cannot cross"),), "any"),
        Ask("accept"),
    ),
    "an undo that waits in a folded branch is paid": (
        Branch((Step("sync", undo=True), Ask("accept"))),
        Ask("accept"),
        Fail("refusal"),
    ),
    "errors of one gather are those of the first in order": (
        Attempt(
            (Gather(((Ask("never"), Fail("refusal")), (Yield(3), Fail("bug"))), "strands"),), "any"
        ),
        Ask("accept"),
    ),
    "what a model calls asks, and what it says goes on": (
        Append("assistant"),
        Converse(((Ask("accept"), Step("sync", undo=True)), (Sample("prompt"),)), "calls"),
        Attempt((Converse(((Ask("decline"),), (Look("messages"),)), "endless"),)),
        Converse(((Attempt((Fail("refusal"),)), Fail("refusal")),), "unknown"),
        Look("messages"),
        Sample("prompt"),
        Fail("refusal"),
    ),
    "a branch is as deep where it is awaited by another": (
        CallTool((Branch((Branch((Ask("accept"),)),), limits=Limits(max_depth=2)),)),
    ),
}
"""Programs in which an edge once failed, or is likely to fail."""


@pytest.mark.parametrize("what", FOUND)
async def test_all_edges_agree_on(what: str) -> None:
    tool = as_tool(FOUND[what])
    alive = await directly(tool, replay=False)
    assert await directly(tool, replay=True) == alive
    await agree(tool, alive)
    await agree_with_an_own_model(tool, alive)


async def agree_with_an_own_model(tool: Tool[Any], alive: Seen) -> None:
    """Assert that a server with its own model gives the same outcome as the run that stayed alive."""
    for mode in ("legacy", "2026-07-28"):
        assert await over_mcp(tool, mode, own=True) == alive


@examples(30, gate=8)
@given(language.programs)
async def test_a_server_with_its_own_model_agrees(program: Block) -> None:
    tool = as_tool(program)
    await agree_with_an_own_model(tool, await directly(tool, replay=False))


@examples(40, gate=12)
@given(language.programs, st.booleans())
async def test_the_rounds_of_agents_agree(program: Block, stored: bool) -> None:
    tool = as_tool(language.without_names(program))
    alive = await directly(tool, replay=False)
    assert await over_agents(tool, stored=stored) == alive


@pytest.mark.parametrize("stored", [False, True], ids=["alive", "stored"])
@pytest.mark.parametrize("what", FOUND)
async def test_the_rounds_of_agents_agree_on(what: str, stored: bool) -> None:
    tool = as_tool(language.without_names(FOUND[what]))
    alive = await directly(tool, replay=False)
    assert await over_agents(tool, stored=stored) == alive


@examples(40, gate=12)
@given(language.programs, st.booleans(), st.booleans())
async def test_rounds_from_a_state_agree(program: Block, own: bool, stored: bool) -> None:
    tool = as_tool(program)
    alive = await directly(tool, replay=False)
    assert await by_rounds(tool, own=own, stored=stored) == alive


@pytest.mark.parametrize("stored", [False, True], ids=["sealed", "stored"])
@pytest.mark.parametrize("own", [False, True], ids=["asked", "own model"])
@pytest.mark.parametrize("what", FOUND)
async def test_rounds_from_a_state_agree_on(what: str, own: bool, stored: bool) -> None:
    tool = as_tool(FOUND[what])
    alive = await directly(tool, replay=False)
    assert await by_rounds(tool, own=own, stored=stored) == alive


@examples(80, gate=20)
@given(language.sleepy_programs)
async def test_deadlines_have_the_same_effect_live_and_replayed(program: Block) -> None:
    tool = as_tool(program)
    assert await directly(tool, replay=True) == await directly(tool, replay=False)


@examples(20, gate=5)
@given(language.sleepy_programs)
async def test_deadlines_have_the_same_effect_over_all_edges(program: Block) -> None:
    """Agents are left out: an agent renews leases by this clock, which jumps to the next renewal."""
    tool = as_tool(language.without_names(program), Limits(timeout=60))
    alive = await directly(tool, replay=False)
    await agree(tool, alive)
    assert await by_rounds(tool, own=False, stored=False) == alive
