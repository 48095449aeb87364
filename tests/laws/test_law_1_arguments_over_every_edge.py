"""Law 1 for arguments: every edge reads a caller's arguments in the same way.

Arguments come as values, as JSON in a text, as nulls for parameters with a default, and with extra
parameters that hosts add. Each edge must give the tool the same values, or refuse the arguments
with the same message.
"""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai import messages as ai
from pydantic_ai.models.function import AgentInfo, FunctionModel

from anabranch import AnabranchError, BranchContext, Capabilities, run_tool, tool
from anabranch.adapters.pydantic_ai import as_tool, questions, results
from anabranch.mcp import SagaClient, as_fastmcp_tool
from anabranch.messages import ElicitReply, ToolResultBlock, text_of
from anabranch.rounds import Asked, Rounds
from anabranch.testing import MockClient
from anabranch.testing import calls as calling
from tests.agents.harness import set_up
from tests.mcp.fastmcp_server import called
from tests.mcp.fastmcp_server import serving as fastmcp
from tests.mcp.harness import ERAS, KEY, MODERN, Answers, accept, connected, serving
from tests.mcp.harness import text_of as shown
from tests.randomised import examples


class Ok(BaseModel):
    ok: bool


class Place(BaseModel):
    city: str
    zip: int | None = None


@tool
async def travel(
    ctx: BranchContext,
    colours: list[str],
    place: Place,
    limit: int = 10,
    note: str | None = "none",
    sizes: dict[str, int] | None = None,
) -> str:
    """Ask, so that the state carries the arguments between rounds, and return the arguments as read."""
    await ctx.elicit(Ok, "Go?")
    return json.dumps([colours, place.model_dump(), limit, note, sizes], sort_keys=True)


def spelt(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values | values.map(json.dumps)


NAMES = st.sampled_from(["red", "a b", '"', "[1]", "null", "ä"])
PLACES = st.fixed_dictionaries({"city": NAMES}, optional={"zip": st.none() | st.integers(0, 9)})
WRONG = st.sampled_from([None, "[", "{}", 7, [7], {"city": 7}, "x"])
ARGUMENTS = st.fixed_dictionaries(
    {"colours": spelt(st.lists(NAMES, max_size=2)) | WRONG, "place": spelt(PLACES) | WRONG},
    optional={
        "limit": st.none() | st.integers(0, 9) | st.sampled_from(["7", "null", "many"]),
        "note": st.none() | NAMES,
        "sizes": st.none() | spelt(st.dictionaries(NAMES, st.integers(0, 9), max_size=2)),
        "toolCallId": st.just("host"),
    },
)


def said(text: str) -> str:
    return text.removeprefix("Error executing tool travel: ")


async def directly(arguments: dict[str, Any]) -> str:
    try:
        return await run_tool(travel, arguments, MockClient(elicits=lambda _: {"ok": True}))
    except AnabranchError as error:
        return str(error)


async def by_rounds(arguments: dict[str, Any]) -> str:
    rounds = Rounds(keys=[KEY])
    try:
        ended: Any = await rounds.run(travel, arguments)
        while isinstance(ended, Asked):
            answers = {
                question.id: {"action": "accept", "content": {"ok": True}}
                for question in ended.questions
            }
            ended = await rounds.run(travel, arguments, state=ended.state, answers=answers)
    except AnabranchError as error:
        return str(error)
    return str(ended.value)


async def over_mcp(server: Any, era: str, arguments: dict[str, Any]) -> str:
    async with connected(server, era, Answers(lambda _: accept(ok=True))) as client:
        return said(shown(await client.call_tool("travel", arguments)))


async def over_fastmcp(era: str, arguments: dict[str, Any]) -> str:
    server, answers = fastmcp(as_fastmcp_tool(travel)), Answers(lambda _: accept(ok=True))
    async with called(server, era, answers) as client:
        return said(shown(await client.call_tool("travel", arguments)))


async def over_saga(arguments: dict[str, Any]) -> str:
    user = MockClient(elicits=lambda _: {"ok": True})
    async with connected(serving(travel), MODERN, Answers()) as client:
        return said(shown(await SagaClient(client, user).call_tool("travel", arguments)))


async def over_a_framework(arguments: dict[str, Any]) -> str:
    """Pydantic AI's agent stands for all adapters of agent frameworks: their rounds are the same."""

    def decide(history: list[ai.ModelMessage], _: AgentInfo) -> ai.ModelResponse:
        if len(history) == 1:
            return ai.ModelResponse([ai.ToolCallPart("travel", arguments, "call-1")])
        [result] = history[-1].parts
        return ai.ModelResponse([ai.TextPart(str(getattr(result, "content", "")))])

    rounds, output = Rounds(keys=[KEY]), [str, DeferredToolRequests]
    tools = [as_tool(travel, rounds)]
    agent: Any = Agent(FunctionModel(decide), tools=tools, output_type=output)
    ended = await agent.run("Go.")
    while isinstance(ended.output, DeferredToolRequests):
        [(call_id, asked)] = questions(ended.output).items()
        answer = {"action": "accept", "content": {"ok": True}}
        answers = {call_id: {each.id: answer for each in asked.questions}}
        given = results(ended.output, answers)
        history = ended.all_messages()
        ended = await agent.run(message_history=history, deferred_tool_results=given)
    return str(ended.output)


async def over_an_agent(arguments: dict[str, Any]) -> str:
    def decide(request: Any) -> Any:
        last = request.messages[-1].content[0]
        done = isinstance(last, ToolResultBlock)
        return "done" if done else calling(("use", "travel", arguments))

    here = await set_up(decide, tools=[travel], capabilities=Capabilities())
    end = await here.say("go")
    for question in await here.agent.open_questions(end):
        end = await here.agent.answer(
            question.id, ElicitReply(action="accept", content={"ok": True})
        )
    [result] = (await here.agent.store.path(end.id)).results.values()
    return text_of(result.content)


@examples(300, gate=15)
@given(arguments=ARGUMENTS)
async def test_every_edge_reads_arguments_in_the_same_way(arguments: dict[str, Any]) -> None:
    expected = await directly(arguments)
    assert await by_rounds(arguments) == expected
    assert await over_saga(arguments) == expected
    assert await over_an_agent(arguments) == expected
    assert await over_a_framework(arguments) == expected
    for era in ERAS:
        assert await over_mcp(serving(travel), era, arguments) == expected
        assert await over_fastmcp(era, arguments) == expected
