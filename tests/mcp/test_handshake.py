"""Up to 2025-11-25: the body stays alive while the client is asked, and ends with the client.

Source: MCP 2025-11-25; docs/mcp.md, "How it maps"; docs/limits-and-errors.md, "Bad answers".
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp import Client, MCPError

from anabranch import Accepted, BranchContext, StepFailed, tool
from anabranch.tool import Tool
from tests.mcp.asking import Ok
from tests.mcp.harness import (
    DECLINE,
    HANDSHAKE,
    MODERN,
    Answers,
    accept,
    connected,
    echo,
    http,
    meddling,
    over,
    say,
    serving,
    text_of,
    use_tool,
)
from tests.patience import PATIENCE


@tool
async def ask(ctx: BranchContext) -> str:
    """Ask the user, and return the outcome."""
    try:
        answer = await ctx.elicit(Ok, "Ok?", key="the question")
    except StepFailed as failure:
        return f"{failure.step_id} failed with {failure.error}: {failure.detail}"
    return answer.action


@tool
async def prompt(ctx: BranchContext) -> str:
    """Ask the model, and return the outcome."""
    try:
        return (await ctx.sample("Hello")).text
    except StepFailed as failure:
        return f"{failure.step_id} failed with {failure.error}: {failure.detail}"


@tool
async def count(ctx: BranchContext, to: int = 3) -> int:
    await ctx.notify("counting")
    return await ctx.step(sum, range(to))


async def test_a_request_names_its_step() -> None:
    answers = Answers(lambda _: accept(ok=True), echo)
    async with connected(serving(ask, prompt), HANDSHAKE, answers) as client:
        await client.call_tool("ask")
        await client.call_tool("prompt")
    metas: list[Any] = [answers.asked[0].meta, answers.prompted[0].meta]
    assert [meta["anabranch/stepId"] for meta in metas] == ["the question", "prompt/sample.1"]


@tool
async def plain(ctx: BranchContext) -> str:
    """Ask the model, and handle no error."""
    return (await ctx.sample("Hello")).text


@pytest.mark.parametrize(
    ("said", "shown"),
    [("no sampling consent callback", "no sampling consent callback"), ("x " * 900, "x x …)")],
)
async def test_a_clients_own_error_reaches_the_caller(said: str, shown: str) -> None:
    def refuse(_: object) -> types.ErrorData:
        return types.ErrorData(code=types.INTERNAL_ERROR, message=said)

    async with connected(serving(plain), HANDSHAKE, Answers(None, refuse)) as client:
        text = text_of(await client.call_tool("plain"))
    assert "Step 'plain/sample.1' failed: the client answered with -32603" in text
    assert shown in text
    assert "log" not in text
    assert len(text) < 700


@pytest.mark.parametrize("transport", ["memory", "http"])
@pytest.mark.parametrize("code", [-2, -32000, -32603])
async def test_a_clients_error_fails_the_step_and_can_be_caught(transport: str, code: int) -> None:
    def broken(_: object) -> types.ErrorData:
        return types.ErrorData(code=code, message="no one at home")

    answers = Answers(broken, broken)
    async with (
        over(transport, serving(ask, prompt)) as server,
        connected(server, HANDSHAKE, answers) as client,
    ):
        elicited = text_of(await client.call_tool("ask"))
        sampled = text_of(await client.call_tool("prompt"))
    assert elicited == f"the question failed with {code}: no one at home"
    assert sampled == f"prompt/sample.1 failed with {code}: no one at home"


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_refusal_by_an_error_has_declined(transport: str) -> None:
    """MCP: code -1 means that the user has rejected a sampling request."""

    def refuse(_: object) -> types.ErrorData:
        return types.ErrorData(code=-1, message="User rejected", data={"by": "rule"})

    @tool(name="prompt")
    async def why(ctx: BranchContext) -> dict[str, Any]:
        try:
            return {"text": (await ctx.sample("?")).text}
        except StepFailed as failed:
            return {"refused": failed.refused, "data": failed.data}

    async with (
        over(transport, serving(ask, why)) as server,
        connected(server, HANDSHAKE, Answers(refuse, refuse)) as client,
    ):
        assert text_of(await client.call_tool("ask")) == "decline"
        refused = await client.call_tool("prompt")
    assert refused.structured_content == {"refused": True, "data": {"by": "rule"}}


async def test_a_modern_client_with_an_error_ends_the_call_itself() -> None:
    """``inputResponses`` have no place for errors, so the server never learns of the error."""

    def broken(_: object) -> types.ErrorData:
        return types.ErrorData(code=-1, message="no one at home")

    async with connected(serving(ask), MODERN, Answers(broken)) as client:
        with pytest.raises(MCPError, match="no one at home"):
            await client.call_tool("ask")


OF_ANOTHER_KIND: dict[str, Any] = {"roots": []}


async def test_an_answer_of_another_kind_is_asked_again() -> None:
    results = iter([OF_ANOTHER_KIND, {"action": "perhaps"}, {"action": "decline"}])

    def alter(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
        if isinstance(message, types.JSONRPCResponse):
            return message.model_copy(update={"result": next(results)})
        return message

    user = Answers(lambda _: DECLINE)
    async with (
        http(serving(ask)) as url,
        connected(meddling(url, alter), HANDSHAKE, user) as client,
    ):
        result = await client.call_tool("ask")
    assert text_of(result) == "decline"
    assert len(user.asked) == 3


async def test_a_client_that_only_gives_answers_of_another_kind_fails_the_step() -> None:
    def alter(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
        if isinstance(message, types.JSONRPCResponse):
            return message.model_copy(update={"result": OF_ANOTHER_KIND})
        return message

    client_answers = Answers(lambda _: DECLINE, echo)
    async with (
        http(serving(ask, prompt)) as url,
        connected(meddling(url, alter), HANDSHAKE, client_answers) as client,
    ):
        elicited = text_of(await client.call_tool("ask"))
        sampled = text_of(await client.call_tool("prompt"))
    assert elicited.startswith("the question failed with InvalidReply")
    assert sampled.startswith("prompt/sample.1 failed with InvalidReply")
    assert (len(client_answers.asked), len(client_answers.prompted)) == (3, 3)


async def test_a_reply_with_an_unknown_kind_of_content_is_asked_for_again() -> None:
    link = types.ResourceLink(type="resource_link", uri="file:///x", name="x")
    strange = types.ToolResultContent(type="tool_result", tool_use_id="u", content=[link])
    whole = types.CreateMessageResultWithTools(role="assistant", content=[strange], model="test")
    replies = iter([whole, say("plainly")])
    answers = Answers(sample=lambda _: next(replies))
    async with connected(serving(prompt), HANDSHAKE, answers) as client:
        result = await client.call_tool("prompt")
    assert text_of(result) == "plainly"
    assert len(answers.prompted) == 2


async def test_a_model_may_answer_with_several_blocks_and_tools() -> None:
    @tool
    async def choose(ctx: BranchContext) -> list[str]:
        """Let the model call a tool."""
        reply = await ctx.sample("Choose", tools=[count])
        return [f"{call.name} {call.arguments}" for call in reply.tool_calls]

    async with connected(
        serving(choose), HANDSHAKE, Answers(sample=lambda _: use_tool("count", to=4))
    ) as client:
        result = await client.call_tool("choose")
    assert result.structured_content == {"result": ["count {'to': 4}"]}


@pytest.mark.parametrize(
    ("revision", "elicited"),
    [
        (
            "2024-11-05",
            "the question failed with -32601: Method not found",
        ),  # a kind of content that no release of the protocol has
        ("2025-03-26", "the question failed with -32601: Method not found"),
        ("2025-06-18", "accept"),
    ],
)
async def test_older_revisions_of_the_protocol_are_served(revision: str, elicited: str) -> None:
    def alter(message: types.JSONRPCMessage) -> types.JSONRPCMessage:
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            params = {**(message.params or {}), "protocolVersion": revision}
            return message.model_copy(update={"params": params})
        return message

    answers = Answers(lambda _: accept(ok=True), echo)
    async with (
        http(serving(ask, prompt)) as url,
        connected(meddling(url, alter), HANDSHAKE, answers) as client,
    ):
        assert client.protocol_version == revision
        assert text_of(await client.call_tool("prompt")) == "<Hello>"
        assert text_of(await client.call_tool("ask")) == elicited


@pytest.mark.parametrize(
    "options",
    [{"json_response": True}, {"stateless_http": True}],
    ids=["json_response", "stateless_http"],
)
async def test_modern_clients_are_asked_over_the_same_endpoints(options: dict[str, bool]) -> None:
    async with (
        http(serving(ask), **options) as url,
        connected(url, MODERN, Answers(lambda _: accept(ok=True))) as client,
    ):
        result = await client.call_tool("ask")
    assert text_of(result) == "accept"


# -- ending early ------------------------------------------------------------------------------


class Trip:
    """A tool that reserves, asks, and records how it ended; its undo awaits."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.asked = anyio.Event()
        self.undone = anyio.Event()

    def reserve(self) -> str:
        self.happened.append("reserve")
        return "seat"

    async def release(self, seat: str) -> None:
        await anyio.sleep(0.01)
        self.happened.append(f"release {seat}")
        self.undone.set()

    def tool(self) -> Tool[str]:
        @tool(name="trip")
        async def body(ctx: BranchContext) -> str:
            await ctx.step(self.reserve, undo=self.release)
            try:
                answer = await ctx.elicit(Ok, "Ok?")
            except StepFailed:
                await ctx.step(self.happened.append, "went on", name="continue")
                raise
            finally:
                self.happened.append("body ended")
            return answer.action if isinstance(answer, Accepted) else "no"

        return body

    async def never(self, _: object) -> types.ElicitResult:
        self.asked.set()
        await anyio.sleep_forever()
        raise AssertionError

    @asynccontextmanager
    async def calling(self, client: Client) -> AsyncGenerator[anyio.CancelScope, None]:
        async def call(*, task_status: anyio.abc.TaskStatus[anyio.CancelScope]) -> None:
            with anyio.CancelScope() as scope:
                task_status.started(scope)
                await client.call_tool("trip")

        async with anyio.create_task_group() as tasks:
            scope = await tasks.start(call)
            await self.asked.wait()
            yield scope


ENDED = ["reserve", "body ended", "release seat"]


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_cancelled_call_ends_its_body_and_runs_its_undos(transport: str) -> None:
    trip = Trip()
    with anyio.fail_after(PATIENCE):
        async with (
            over(transport, serving(trip.tool(), ask)) as server,
            connected(server, HANDSHAKE, Answers(trip.never)) as client,
        ):
            async with trip.calling(client) as scope:
                scope.cancel()
            await trip.undone.wait()
            assert trip.happened == ENDED
            assert [tool.name for tool in (await client.list_tools()).tools] == ["trip", "ask"]


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_client_that_disconnects_ends_the_body_and_its_undos_run(transport: str) -> None:
    trip = Trip()
    with anyio.fail_after(PATIENCE):
        async with over(transport, serving(trip.tool())) as server, anyio.create_task_group() as tg:
            async with connected(server, HANDSHAKE, Answers(trip.never)) as client:

                async def call() -> None:
                    with pytest.raises(MCPError, match="Connection closed"):
                        await client.call_tool("trip")

                tg.start_soon(call)
                await trip.asked.wait()
            await trip.undone.wait()
    assert trip.happened == ENDED


async def test_the_clients_question_is_withdrawn_when_its_call_is_cancelled() -> None:
    trip, withdrawn = Trip(), anyio.Event()

    async def never(_: object) -> types.ElicitResult:
        trip.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        raise AssertionError

    with anyio.fail_after(PATIENCE):
        async with connected(serving(trip.tool()), HANDSHAKE, Answers(never)) as client:
            async with trip.calling(client) as scope:
                scope.cancel()
            await withdrawn.wait()


async def test_a_modern_call_dropped_during_a_round_runs_that_rounds_undos() -> None:
    busy, undone = anyio.Event(), anyio.Event()
    happened: list[str] = []

    async def release(seat: str) -> None:
        await anyio.lowlevel.checkpoint()
        happened.append(f"release {seat}")
        undone.set()

    async def work() -> None:
        busy.set()
        await anyio.sleep_forever()

    @tool
    async def slow(ctx: BranchContext) -> str:
        seat = await ctx.step("seat".strip, undo=release)
        await ctx.step(work)
        return seat

    async def call(client: Client, *, task_status: anyio.abc.TaskStatus[Any]) -> None:
        with anyio.CancelScope() as scope:
            task_status.started(scope)
            await client.call_tool("slow")

    with anyio.fail_after(PATIENCE):
        async with (
            http(serving(slow)) as url,
            connected(url, MODERN) as client,
            anyio.create_task_group() as tasks,
        ):
            scope = await tasks.start(call, client)
            await busy.wait()
            scope.cancel()
            await undone.wait()
    assert happened == ["release seat"]
