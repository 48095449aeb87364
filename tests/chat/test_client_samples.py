"""``on_sample``: the client of a chat's server answers what tools ask a model, within its policy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from anabranch import AnsweringPolicy, BranchContext, Capabilities, StepFailed, tool
from anabranch.agents import Absent, Question
from anabranch.chat import ChatClient, ChatClientError, make_chat_app
from anabranch.errors import REFUSED
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, TextBlock, ToolSpec
from anabranch.testing import AnswerError, MockModel, calls
from tests.agents.memory import MemoryTrees
from tests.chat.test_chat_client import results
from tests.chat.web import model, serving
from tests.patience import PATIENCE


class Verdict(BaseModel):
    good: bool


@tool
async def ponder(ctx: BranchContext, about: str = "rain") -> str:
    """Ask the model of the client."""
    try:
        return (await ctx.sample(f"What is {about}?", system_prompt="Be brief.")).text
    except StepFailed as failed:
        return f"failed: {failed}"


@tool
async def judge(ctx: BranchContext) -> bool:
    """Ask it for an object."""
    return (await ctx.sample("Is it good?", schema=Verdict)).parsed.good


@tool
async def choose(ctx: BranchContext) -> list[str]:
    """Ask it to call a tool."""
    look = ToolSpec(name="look", input_schema={"type": "object"})
    return [each.name for each in (await ctx.sample("Look?", tools=[look])).tool_calls]


@tool
async def both(ctx: BranchContext) -> list[str]:
    """Ask it two things at once."""
    asked = (ctx.branch(_left), ctx.branch(_right))
    return [*await ctx.gather(*asked)]


async def _left(ctx: BranchContext) -> str:
    return (await ctx.sample("left")).text


async def _right(ctx: BranchContext) -> str:
    return (await ctx.sample("right")).text


@asynccontextmanager
async def chat_server() -> AsyncGenerator[str]:
    app = make_chat_app(MemoryTrees(), model(), [ponder, judge, choose, both], samples_asked=True)
    async with serving(app) as url:
        yield url


async def returned(client: ChatClient, said: str) -> list[object]:
    return results([event async for event in client.stream("t1", said)])


async def asynchronous(request: SampleRequest) -> str:
    return f"{request.system_prompt} {request.messages[-1].text}"


def synchronous(request: SampleRequest) -> SampleReply:
    on_loop = threading.current_thread() is threading.main_thread()
    return SampleReply(content=(TextBlock(text=f"on the loop: {on_loop}"),), model="mine")


def halved(request: SampleRequest) -> str:
    return "half a \ud83d"


def counting(request: SampleRequest) -> int:
    return len(request.messages)


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        pytest.param(asynchronous, "Be brief. What is rain?", id="async"),
        pytest.param(synchronous, "on the loop: False", id="sync"),
        pytest.param(MockModel(lambda request: "Water.").sample, "Water.", id="a model"),
        pytest.param(halved, "half a \\ud83d", id="unencodable"),
    ],
)
async def test_a_sample_goes_to_on_sample(handler: Any, text: str) -> None:
    async with chat_server() as url:
        assert await returned(ChatClient(url, on_sample=handler), "/ponder") == [text]


async def test_the_reply_may_be_an_object_or_a_tool_call() -> None:
    def answer(request: SampleRequest) -> SampleReply:
        assert request.tools is not None
        return calls(("use_1", request.tools[0].name, {"good": True}))

    async with chat_server() as url:
        client = ChatClient(url, on_sample=answer)
        assert await returned(client, "/judge") == ["true"]
        assert await returned(client, "/choose") == ['[\n  "look"\n]']


async def test_samples_of_one_round_are_answered_at_the_same_time() -> None:
    arrived = asyncio.Barrier(2)

    async def answer(request: SampleRequest) -> str:
        await arrived.wait()
        return request.messages[-1].text.upper()

    async with chat_server() as url:
        [said] = await returned(ChatClient(url, on_sample=answer), "/both")
        assert str(said).split() == ["[", '"LEFT",', '"RIGHT"', "]"]


async def test_without_a_handler_there_is_one_error_and_the_sample_stays_open() -> None:
    """A plugin, or an answerer that cannot sample, is no handler for it."""
    async with chat_server() as url:
        for client in (ChatClient(url), ChatClient(url, otherwise=Person())):
            with pytest.raises(ChatClientError, match=r"the tool ponder asks a model.*on_sample="):
                await client.say("t1", "/ponder")
        await ChatClient(url, on_sample=asynchronous).go_on("t1")
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            assert "Be brief. What is rain?" in (await http.get("/threads/t1/tree")).text


async def test_what_is_no_reply_is_not_sent() -> None:
    handler: Any = counting
    async with chat_server() as url:
        with pytest.raises(TypeError, match="on_sample returned int"):
            await ChatClient(url, on_sample=handler).say("t1", "/ponder")


class Person(Absent):
    """Is asked whether a sample is allowed; answers none."""

    def __init__(self, action: Any = "accept") -> None:
        self.reply = ElicitReply(action=action)
        self.asked: list[str] = []

    capabilities = Capabilities(sampling=False, sampling_tools=False)

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        self.asked.append(question.message)
        return self.reply


@pytest.mark.parametrize(
    ("options", "action", "result"),
    [
        pytest.param({"never_for_tools": ["ponder"]}, "", "refused", id="tool"),
        pytest.param({"confirm_samples": True}, "accept", "Be brief.", id="confirmed"),
        pytest.param({"confirm_samples": True}, "decline", "refused", id="not confirmed"),
        pytest.param({"max_samples_per_minute": 1}, "", "Be brief.", id="rate"),
    ],
)
async def test_the_policy_says_what_is_answered(
    options: dict[str, Any], action: str, result: str
) -> None:
    person = Person(action or "cancel")
    async with chat_server() as url:
        client = ChatClient(
            url, otherwise=person, on_sample=asynchronous, policy=AnsweringPolicy(**options)
        )
        [said] = await returned(client, "/ponder")
        assert result in str(said)
        if action:
            [asked] = person.asked
            assert url in asked
            assert "in a call of ponder" in asked
        if "max_samples_per_minute" in options:
            assert "refused" in str(await returned(client, "/ponder"))


class Refusing(Absent):
    """Can sample and ask, and refuses with an error of this code."""

    capabilities = Capabilities()

    def __init__(self, code: str | int) -> None:
        self.code = code

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        raise AnswerError("not now", self.code)


async def test_an_answerer_that_can_sample_does() -> None:
    """What it refuses is declined; what it cannot answer stays open."""
    async with chat_server() as url:
        with pytest.raises(AnswerError, match="not now"):
            await ChatClient(url, otherwise=Refusing("busy")).say("t1", "/ponder")
        client = ChatClient(url, otherwise=Refusing(REFUSED))
        events = [event async for event in client.stream_answers("t1")]
        assert "refused" in str(results(events))
