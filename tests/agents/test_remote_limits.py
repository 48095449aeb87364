"""Limits on a call of another server's tool: its result, questions, samples, notices and time."""

import asyncio
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, Limits, ToolError, tool
from anabranch.agents import QuestionExpiredError, RemoteLimits, RemoteTools, ToolNoticed, end_of
from anabranch.messages import ElicitReply, SampleRequest
from anabranch.testing import ManualClock
from anabranch.tree import Node
from tests.agents.harness import Answering, Setting, set_up
from tests.agents.remote import ERAS, OTHER, listing, outcome_of, result_of, using
from tests.mcp.harness import serving

pytestmark = pytest.mark.usefixtures("found")

FEW = RemoteLimits(
    max_result=1_000, max_question=4_000, max_questions=2, max_samples=3, max_notices=10
)


class Name(BaseModel):
    name: str


PNG = "iVBORw0KGgoA"


def others() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("others", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def text(size: int) -> str:
        return "x" * size

    @server.tool(structured_output=False)
    def picture(size: int) -> Any:
        return types.ImageContent(
            type="image", data=PNG + "A" * (size - len(PNG)), mime_type="image/png"
        )

    @server.tool(structured_output=False)
    def parts(number: int) -> Any:
        return [types.TextContent(type="text", text="")] * number

    @server.tool()
    async def refuse(ctx: Context, size: int) -> str:
        raise MCPError(code=types.INVALID_PARAMS, message="x" * size)

    @server.tool()
    async def flood(ctx: Context, number: int) -> str:
        for each in range(number):
            await ctx.report_progress(each, number, f"at {each}")
        return "flooded"

    return server


@pytest.mark.parametrize(
    ("name", "arguments", "fits"),
    [
        ("text", {"size": 1_000}, True),
        ("text", {"size": 1_001}, False),
        ("picture", {"size": 1_000}, True),
        ("picture", {"size": 1_004}, False),
        ("parts", {"number": 1_000}, True),
        ("parts", {"number": 1_001}, False),
    ],
)
async def test_a_result_that_is_too_large_is_left_out(
    name: str, arguments: dict[str, Any], fits: bool
) -> None:
    async with RemoteTools(others(), limits=FEW) as remote:
        text, failed = await outcome_of(remote, name, **arguments)
    assert failed is not fits
    if not fits:
        assert text.startswith(f"The result of {name!r} is too large, and is left out: it has ")
        assert len(text) < 300


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_refusal_keeps_its_beginning(era: Any) -> None:
    """The refusal is the call's result, although the server sends a protocol error."""
    async with RemoteTools(others(), era=era) as remote:
        text, failed = await outcome_of(remote, "refuse", size=20_000_000)
    assert failed
    assert "has refused the call: xxx" in text
    assert len(text) < 5_000


async def test_a_long_connection_error_keeps_its_beginning() -> None:
    async def refuse(ctx: Any, call_next: Any) -> Any:
        raise MCPError(code=types.INVALID_PARAMS, message="x" * 20_000_000)

    server = listing("some")
    server.middleware.append(refuse)
    with pytest.raises(ToolError, match="cannot be used: xxx") as caught:
        async with RemoteTools(server, era="handshake"):
            pass
    assert len(str(caught.value)) < 5_000


async def test_reports_of_a_server_are_shown_up_to_a_limit() -> None:
    async with RemoteTools(OTHER, limits=FEW) as remote:
        setting = await set_up(using("flood", number=3_000), tools=[remote])
        _, failed = await result_of(setting)
    notices = [each.notice for each in setting.events if isinstance(each, ToolNoticed)]
    assert not failed
    assert len(notices) == 11
    assert notices[-1].message == "Only 10 lines of the tool's reports are shown."


@tool
async def endless(ctx: BranchContext) -> str:
    while True:
        await ctx.sample("again")


@tool
async def long_sample(ctx: BranchContext) -> str:
    return (await ctx.sample("x" * 5_000)).text


@tool
async def long_question(ctx: BranchContext) -> str:
    return (await ctx.elicit(Name, "x" * 5_000)).action


@tool
async def many_questions(ctx: BranchContext) -> str:
    """Ask the user many questions at the same time."""
    await ctx.gather(*(ctx.elicit(Name, f"Which, {each}?", key=f"k{each}") for each in range(3)))
    return "asked"


ACCEPTED = ElicitReply(action="accept", content={"name": "Ida"})


@pytest.mark.parametrize(
    ("asks", "problem"),
    [
        (endless, "one call may ask the model 3 times, and this one has"),
        (long_sample, "asks too much together"),
        (long_question, "asks too much together"),
        (many_questions, "asks too much together"),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
@pytest.mark.parametrize("era", ERAS)
async def test_questions_of_a_server_are_limited(era: Any, asks: Any, problem: str) -> None:
    def decide(request: SampleRequest) -> Any:
        return "yes" if request.messages[-1].text == "again" else using(asks.name)(request)

    user = Answering(lambda _: ACCEPTED)
    async with RemoteTools(serving(asks), era=era, limits=FEW) as remote:
        setting = await set_up(decide, tools=[remote], user=user)
        [content], failed = await result_of(setting)
    assert failed
    assert problem in str(content)
    assert len(setting.model.requests) <= 2 + 3


async def test_samples_are_counted_over_the_users_answers() -> None:
    @tool
    async def asks_between(ctx: BranchContext) -> str:
        """Ask the model, and the user in between."""
        for each in range(4):
            await ctx.sample("again")
            await ctx.elicit(Name, f"Which, {each}?")
        return "done"

    def decide(request: SampleRequest) -> Any:
        return "yes" if request.messages[-1].text == "again" else using("asks_between")(request)

    user = Answering(lambda _: ACCEPTED)
    async with RemoteTools(serving(asks_between), limits=FEW) as remote:
        setting = await set_up(decide, tools=[remote], user=user)
        [content], failed = await result_of(setting)
    assert failed
    assert "may ask the model 3 times" in str(content)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_takes_too_long_is_cancelled(era: Any) -> None:
    clock, cancelled = ManualClock(), asyncio.Event()

    @tool
    async def hang(ctx: BranchContext) -> str:
        await ctx.log("info", "here")
        try:
            await ctx.step(asyncio.Event().wait)
        finally:
            cancelled.set()
        return ""

    async def on_event(event: object) -> None:
        if isinstance(event, ToolNoticed):
            clock.advance(61)

    async with RemoteTools(serving(hang), era=era) as remote:
        limits = Limits(timeout=60)
        setting = await set_up(
            using("hang"), tools=[remote], clock=clock, tool_limits=limits, listener=on_event
        )
        [content], failed = await result_of(setting)
        await cancelled.wait()
    assert failed
    assert "'hang' has not ended within 60 s, and was cancelled." in str(content)


@tool
async def book(ctx: BranchContext) -> str:
    return (await ctx.elicit(Name, "For whom?")).action


async def asked(remote: RemoteTools, clock: ManualClock) -> tuple[Setting, Node]:
    """Start a call that asks and may take a minute; return its question, which states the deadline."""
    options: dict[str, Any] = {"clock": clock, "capabilities": Capabilities()}
    setting = await set_up(using("book"), tools=[remote], tool_limits=Limits(timeout=60), **options)
    [question] = await setting.agent.open_questions(await setting.say("go"))
    end = await end_of(setting.agent, setting.thread_id)
    assert end is not None
    assert end.until == clock.now() + 60
    return setting, question


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_after_the_time_of_the_call_is_refused(era: Any) -> None:
    clock = ManualClock()
    async with RemoteTools(serving(book), era=era) as remote:
        setting, question = await asked(remote, clock)
        clock.advance(60)
        with pytest.raises(QuestionExpiredError):
            await setting.agent.answer(question.id, ACCEPTED)
        end = await setting.agent.resume(question)
        [result] = (await setting.agent.store.path(end.id)).results.values()
    assert result.is_error
    assert "'book' has not ended within 60 s" in str(result.content)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_in_the_time_of_the_call_reaches_it(era: Any) -> None:
    clock = ManualClock()
    async with RemoteTools(serving(book), era=era) as remote:
        setting, question = await asked(remote, clock)
        clock.advance(59)
        end = await setting.agent.answer(question.id, ACCEPTED)
        [result] = (await setting.agent.store.path(end.id)).results.values()
    assert "accept" in str(result.content)


async def test_a_server_that_waits_for_an_answer_gets_an_error_when_the_time_ends() -> None:
    cancelled, clock = asyncio.Event(), ManualClock()
    server: MCPServer[Any] = MCPServer("others", log_level="CRITICAL")

    @server.tool(name="book")
    async def wait(ctx: Context) -> str:
        try:
            return (await ctx.elicit("For whom?", Name)).action
        finally:
            cancelled.set()

    async with RemoteTools(server, era="handshake") as remote:
        setting, question = await asked(remote, clock)
        clock.advance(60)
        assert not cancelled.is_set()
        await setting.agent.resume(question)
        await cancelled.wait()
