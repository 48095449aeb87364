"""FastMCP as a host: our tools on its server, for its client and the SDK's, in both eras.

FastMCP itself decides schemas in the list, results, and the wording of errors.
"""

import json
import logging
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import fastmcp
import mcp_types as types
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError as FastMcpToolError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import Tool as FastMcpBase
from fastmcp.tools.base import ToolResult
from mcp import Client, MCPDeprecationWarning, MCPError
from pydantic import BaseModel

from anabranch import BranchContext, ToolError, tool
from anabranch._durable import INTERVAL
from anabranch.errors import install_command
from anabranch.mcp import as_fastmcp_tool, fastmcp_sagas, install_fastmcp
from anabranch.testing import ManualClock
from examples.deploy import deploy
from tests.masking import with_any_id
from tests.mcp.asking import YES, Ok, ask
from tests.mcp.fastmcp_server import called, inside, serving
from tests.mcp.harness import (
    ERAS,
    HANDSHAKE,
    KEY,
    MODERN,
    Answers,
    accept,
    asgi,
    call_once,
    connected,
    echo,
    text_of,
)
from tests.mcp.tools import ANSWERED, Report, journey, traveller
from tests.patience import PATIENCE
from tests.sagas.harness import call_saga, resume_saga
from tests.sagas.harness import text_in as text_of_saga

HOW = pytest.mark.parametrize("transport", ["memory", "http"])
ERA = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def over(transport: str, server: FastMCP[Any]) -> AsyncGenerator[Any]:
    """Return the target to connect to: the server itself, or its URL."""
    if transport == "http":
        async with asgi(server.http_app()) as url:
            yield url
    else:
        yield inside(server)


def by_fastmcp(to: Any, era: str, answers: Answers) -> fastmcp.Client[Any]:
    """Connect FastMCP's own client, with its own kinds of callbacks."""

    async def elicit(message: str, kind: object, params: Any, context: object) -> Any:
        return await answers.elicit(context, params)

    async def sample(messages: object, params: Any, context: object) -> Any:
        return await answers.sample(context, params)

    return fastmcp.Client(
        to,
        mode=era,
        elicitation_handler=elicit,
        sampling_handler=sample,
        log_handler=answers.log,
        progress_handler=answers.on_progress,
    )


# -- calls -------------------------------------------------------------------------------------


@ERA
@HOW
async def test_fastmcps_own_client_sees_the_same(transport: str, era: str, tmp_path: Path) -> None:
    effects, answers = tmp_path / "effects", traveller()
    server = serving(as_fastmcp_tool(journey(effects)))
    async with over(transport, server) as there:
        to = server if transport == "memory" else there
        async with by_fastmcp(to, era, answers) as client:
            result = await client.call_tool("journey", {"who": "Ida"})
    assert Report.model_validate(result.structured_content) == ANSWERED
    assert effects.read_text().split() == ["pack", "scout", "book"]
    assert [message for _, _, message in answers.progress] == ["packing", "scouting", "done"]


@ERA
async def test_the_tool_stands_next_to_those_of_its_server_and_keeps_its_schema(era: str) -> None:
    server = serving(as_fastmcp_tool(ask))

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with called(server, era, Answers()) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        added = await client.call_tool("add", {"a": 1, "b": 2})
    assert added.structured_content == {"result": 3}
    assert listed["ask"].description == "Ask whether to do it."
    assert listed["ask"].input_schema == ask.input_schema
    assert listed["ask"].output_schema == {
        "type": "object",
        "properties": {"result": {"type": "string"}},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    }


class Place(BaseModel):
    name: str
    height: int


VALUES: dict[str, tuple[Any, Any, Any]] = {
    "a model": (Place, Place(name="K2", height=8611), {"name": "K2", "height": 8611}),
    "a text": (str, "hi", {"result": "hi"}),
    "a list": (list[int], [1, 2], {"result": [1, 2]}),
    "a dict": (dict[str, int], {"a": 1}, {"a": 1}),
    "an optional": (int | None, None, {"result": None}),
    "nothing": (None, None, None),
    "whatever": (Any, {"a": [1]}, {"a": [1]}),
}


@ERA
@pytest.mark.parametrize("what", VALUES)
async def test_values_become_the_result_that_fastmcp_makes_of_them(era: str, what: str) -> None:
    annotation, value, _ = VALUES[what]

    async def give(ctx: BranchContext) -> Any:
        await ctx.elicit(Ok, "Now?")
        return value

    async def same() -> Any:
        return value

    give.__annotations__["return"] = same.__annotations__["return"] = annotation
    server = serving(as_fastmcp_tool(tool(give)), FastMcpBase.from_function(same))
    async with called(server, era, Answers(lambda _: accept(ok=True))) as client:
        ours, theirs = await client.call_tool("give"), await client.call_tool("same")
    assert ours.structured_content == theirs.structured_content == VALUES[what][2]
    assert ours.content == theirs.content


@ERA
@pytest.mark.parametrize("what", VALUES)
async def test_values_of_sagas_are_the_same_but_for_texts_which_are_not_said_twice(
    era: str, what: str
) -> None:
    annotation, value, structured = VALUES[what]

    async def give(ctx: BranchContext) -> Any:
        return value

    give.__annotations__["return"] = annotation
    server = serving()
    install_fastmcp(server, tool(give))
    async with called(server, era, Answers()) as client:
        direct, saga = await client.call_tool("give"), await call_saga(client, "give", {})
    assert saga["content"] == [block.model_dump(exclude_none=True) for block in direct.content]
    assert saga.get("structuredContent") == (None if what == "a text" else structured)


async def test_fastmcps_client_has_the_plain_value_as_data() -> None:
    answers = Answers(lambda _: accept(ok=True), echo)
    async with by_fastmcp(serving(as_fastmcp_tool(ask)), MODERN, answers) as client:
        assert (await client.call_tool("ask")).data == "accept"


@ERA
async def test_a_tool_without_return_annotation_has_no_output_schema(era: str) -> None:
    async def give(ctx: BranchContext) -> Any:
        return [1, {"a": 2}]

    del give.__annotations__["return"]
    async with called(serving(as_fastmcp_tool(tool(give))), era, Answers()) as client:
        (listed,) = (await client.list_tools()).tools
        result = await client.call_tool("give")
    assert listed.output_schema is None
    assert json.loads(text_of(result)) == [1, {"a": 2}]


# -- errors that callers receive ----------------------------------------------------------------


@tool
async def failing(ctx: BranchContext, how: str) -> str:
    """Fail in the requested way, in the second round."""
    await ctx.elicit(Ok, "Now?")
    if how == "foreign":
        raise OSError("password: hunter2")
    if how == "validation":
        Ok.model_validate({"ok": "hunter2"})
    if how == "fastmcp":
        raise FastMcpToolError("closed, says FastMCP")
    if how == "protocol":
        raise MCPError(types.INVALID_PARAMS, "not like that", {"field": "x"})
    raise ToolError("the shop is closed")


SEEN_BY_CALLERS = {
    "foreign": "Error calling tool 'failing' (error ID)",
    "validation": "Error calling tool 'failing' (error ID)",
    "fastmcp": "closed, says FastMCP",
    "tool": "the shop is closed",
}


@ERA
@pytest.mark.parametrize("how", SEEN_BY_CALLERS)
async def test_a_foreign_exception_is_masked_for_the_caller_and_logged(
    era: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(lambda _: accept(ok=True))
    with caplog.at_level(logging.INFO):
        async with called(serving(as_fastmcp_tool(failing)), era, answers) as client:
            result = await client.call_tool("failing", {"how": how})
    assert result.is_error
    assert with_any_id(text_of(result)) == SEEN_BY_CALLERS[how]
    assert ("hunter2" in caplog.text) == (how in ("foreign", "validation"))


@ERA
async def test_a_protocol_error_that_a_tool_raises_on_purpose_keeps_its_code(era: str) -> None:
    answers = Answers(lambda _: accept(ok=True))
    async with called(serving(as_fastmcp_tool(failing)), era, answers) as client:
        with pytest.raises(MCPError, match="not like that") as raised:
            await client.call_tool("failing", {"how": "protocol"})
    assert raised.value.error.code == types.INVALID_PARAMS
    assert raised.value.error.data == {"field": "x"}


async def test_middleware_sees_a_refusal_as_a_result_that_is_an_error() -> None:
    seen: list[Any] = []

    class Watch(Middleware):
        async def on_call_tool(
            self,
            context: MiddlewareContext[types.CallToolRequestParams],
            call_next: CallNext[types.CallToolRequestParams, ToolResult],
        ) -> ToolResult:
            result = await call_next(context)
            seen.append(result.is_error)
            return result

    server = serving(as_fastmcp_tool(ask), middleware=[Watch()])
    async with called(server, MODERN, Answers()) as client:
        with pytest.raises(MCPError):
            await client.call_tool("ask")
    assert seen == [True]


async def test_without_a_client_a_tool_cannot_be_called() -> None:
    server = serving(as_fastmcp_tool(ask))
    with pytest.raises(FastMcpToolError, match=r"'ask' asks the client .* and there is none"):
        await server.call_tool("ask", {})
    with pytest.raises(FastMcpToolError, match="there is none"):
        await as_fastmcp_tool(ask).run({})


# -- the client's log --------------------------------------------------------------------------


@tool
async def chatter(ctx: BranchContext) -> None:
    await ctx.log("info", "small talk")
    await ctx.log("error", "bad news")


async def test_the_level_that_a_client_has_set_on_the_server_holds() -> None:
    answers = Answers()
    async with called(serving(as_fastmcp_tool(chatter)), HANDSHAKE, answers) as client:
        with pytest.warns(MCPDeprecationWarning):
            await client.set_logging_level("warning")
        await client.call_tool("chatter")
    assert answers.logs == [("error", "bad news")]


@ERA
async def test_the_level_of_the_server_itself_holds(era: str) -> None:
    answers = Answers()
    server = serving(as_fastmcp_tool(chatter), client_log_level="error")
    async with called(server, era, answers) as client:
        await client.call_tool("chatter")
    assert answers.logs == [("error", "bad news")]


# -- state -------------------------------------------------------------------------------------


async def opened(client: Client) -> str:
    state: str = (await call_once(client, "ask"))["requestState"]
    return state


async def test_another_answer_to_an_answered_round_is_refused_in_the_same_words() -> None:
    """The seal is valid; only the store knows that the answer has changed."""
    server = serving(as_fastmcp_tool(ask, store="memory:"))
    async with called(server, MODERN, Answers(lambda _: None)) as client:
        state = await opened(client)
        await call_once(client, "ask", state=state, responses={"ask/elicit.1": YES})
        no = {"ask/elicit.1": {"action": "decline"}}
        with pytest.raises(MCPError) as refused:
            await call_once(client, "ask", state=state, responses=no)
    assert refused.value.error.code == -32602
    assert refused.value.error.message == "Invalid or expired requestState"
    assert refused.value.error.data == {"reason": "invalid_request_state"}


# -- sagas -------------------------------------------------------------------------------------

TARGET = {"stepId": "target", "result": {"action": "accept", "content": {"target": "production"}}}
GREEN = {
    "stepId": "safety",
    "result": {
        "role": "assistant",
        "content": {"type": "text", "text": "Yes, all systems are green."},
        "model": "client-side-llm-v2",
    },
}


@ERA
@HOW
async def test_a_saga_runs_to_its_result(transport: str, era: str) -> None:
    server = serving()
    install_fastmcp(server, deploy, keys=[KEY])
    async with over(transport, server) as there, connected(there, era) as client:
        first = await call_saga(client, "deploy", {"version": "value"})
        second = await resume_saga(client, first["sagaToken"], TARGET)
        done = await resume_saga(client, second["sagaToken"], TARGET, GREEN)
    text = "Version value runs on production."
    assert done == {"content": [{"type": "text", "text": text}]}


@ERA
async def test_a_saga_gets_the_log_level_of_its_server(era: str) -> None:
    answers = Answers()
    server = serving(client_log_level="error")
    install_fastmcp(server, chatter)
    async with called(server, era, answers) as client:
        assert await call_saga(client, "chatter", {}) == {"content": []}
    assert answers.logs == [("error", "bad news")]


async def test_a_saga_calls_only_tools_that_the_server_shows() -> None:
    """A tool that the server has disabled must not be callable through a saga."""
    server = serving(as_fastmcp_tool(ask), as_fastmcp_tool(deploy))
    server.add_extension(fastmcp_sagas(keys=[KEY]))

    async with called(server, MODERN, Answers()) as client:
        began = await call_saga(client, "deploy", {"version": "value"})
        server.disable(names={"deploy"})
        for name in ("deploy", "nowhere"):
            with pytest.raises(MCPError, match=f"name: there is no tool '{name}'"):
                await call_saga(client, name, {})
        with pytest.raises(MCPError, match="Invalid or expired sagaToken"):
            await resume_saga(client, began["sagaToken"], TARGET)
        assert (await call_saga(client, "ask", {}))["state"] == "suspended"


# -- several tools -----------------------------------------------------------------------------


async def test_a_tool_installed_later_is_offered_to_sagas_as_well() -> None:
    server = serving()
    install_fastmcp(server, ask, keys=[KEY])
    install_fastmcp(server, deploy, keys=[KEY])
    async with called(server, MODERN, Answers()) as client:
        assert (await call_saga(client, "ask", {}))["state"] == "suspended"
        begun = await call_saga(client, "deploy", {"version": "value"})
    assert begun["state"] == "suspended"


@tool
async def patient(ctx: BranchContext) -> list[str]:
    """Ask eleven questions in turn: more than a client allows in one request."""
    given: list[str] = []
    for number in range(11):
        answer = await ctx.elicit(Ok, f"Question {number}?")
        given.append(answer.action)
    return given


async def test_with_a_store_a_call_of_many_rounds_is_continued() -> None:
    server = serving()
    install_fastmcp(server, patient, store="memory:")
    answers = Answers(lambda _: accept(ok=True))
    async with called(server, MODERN, answers) as client:
        stopped = await client.call_tool("patient")
        assert stopped.is_error  # the result lacks the value that the schema promises
        line = text_of(stopped).partition("call='")[2].partition("'")[0]
        result = await client.call_tool("continue_call", {"call": line})
        ended = await call_saga(client, "continue_call", {"call": line})
        assert "its questions are answered" in text_of_saga(ended)
    assert json.loads(text_of(result)) == ["accept"] * 11
    assert len(answers.asked) == 11


class ReaperClock(ManualClock):
    """A clock that reports when the reaper waits for its next pass.

    The test moves the time only then: during a pass, the reaper's lease must not expire.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reaper_waits = anyio.Event()

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        timer = super().call_at(when, callback)
        if when - self.now() == INTERVAL:
            self.reaper_waits.set()
        return timer


async def test_while_the_server_runs_expired_calls_are_undone() -> None:
    clock = ReaperClock()
    undone = anyio.Event()

    async def release(seat: str) -> None:
        undone.set()

    @tool(name="ask")
    async def book(ctx: BranchContext) -> str:
        await ctx.step("seat".upper, undo=release)
        await ctx.elicit(Ok, "Sure?")
        return "booked"

    server = serving()
    install_fastmcp(server, book, store="memory:", clock=clock)
    async with called(server, MODERN, Answers(lambda _: None)) as client:
        await opened(client)
        assert not undone.is_set()
        with anyio.fail_after(PATIENCE):
            await clock.reaper_waits.wait()
            clock.advance(1000)
            await undone.wait()


@pytest.mark.usefixtures("cold")
def test_a_missing_fastmcp_breaks_no_other_import_and_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["fastmcp"] = None  # what an import system does with a package that is not there
import anabranch.mcp
from anabranch import BranchContext, tool

@tool
async def nothing(ctx: BranchContext) -> None: ...

try:
    anabranch.mcp.as_fastmcp_tool(nothing)
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == (
        "Serving tools with FastMCP needs the package 'fastmcp', which is not installed."
        f" Install it: {install_command('fastmcp')}\n"
    )
