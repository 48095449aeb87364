"""The client side of calls against real servers, in both eras of the protocol."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, Extension, MCPServer, MethodBinding
from pydantic import BaseModel

from anabranch import AnswerError, BranchContext, Capabilities, StepFailed, ToolSpec, tool
from anabranch.mcp import create_server
from anabranch.mcp._client import Era, call_tool, connect, list_tools, offers_sagas
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolUseBlock,
    UrlRequest,
    Usage,
)

both_eras = pytest.mark.parametrize("era", ["modern", "handshake"])
LOOK = ToolSpec(name="look", description="Look.", input_schema={"type": "object"})


class Confirm(BaseModel):
    ok: bool


@dataclass
class Recorder:
    """Gives `reply`, or raises it, and records the questions and notices that it received."""

    reply: SampleReply | ElicitReply | AnswerError = field(
        default_factory=lambda: ElicitReply(action="decline")
    )
    capabilities: Capabilities = field(default_factory=Capabilities)
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    notices: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    async def sample(self, request: SampleRequest, *, step_id: str) -> SampleReply:
        self.asked.append((step_id, request))
        if isinstance(self.reply, AnswerError):
            raise self.reply
        assert isinstance(self.reply, SampleReply)
        return self.reply

    async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
        self.asked.append((step_id, request))
        if isinstance(self.reply, AnswerError):
            raise self.reply
        assert isinstance(self.reply, ElicitReply)
        return self.reply

    async def log(self, level: str, message: str) -> None:
        self.notices.append((level, message))

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        self.notices.append((message, progress, total))


async def run(body: Callable[..., Any], era: Era, answerer: Recorder) -> types.CallToolResult:
    server = create_server("test", [tool(name="t")(body)])
    async with connect(server, answerer, era=era) as client:
        return await call_tool(client, "t", {}, answerer)


@both_eras
async def test_a_sample_arrives_as_it_was_asked(era: Era) -> None:
    async def body(ctx: BranchContext) -> str:
        reply = await ctx.sample(
            "Why?",
            system_prompt="Be brief.",
            max_tokens=7,
            tools=[LOOK],
            tool_choice="required",
            model_preferences={"hints": [{"name": "small"}]},
            temperature=0.5,
            stop_sequences=["END"],
            include_context="thisServer",
            metadata={"user": "u1"},
        )
        return f"{reply.text} {reply.tool_calls[0].arguments} {reply.stop_reason} {reply.model}"

    blocks = (TextBlock(text="Hm."), ToolUseBlock(id="u1", name="look", input={"at": 1}))
    reply = SampleReply(content=blocks, model="m", stop_reason="toolUse", usage=Usage())
    recorder = Recorder(reply, Capabilities(sampling_context=True))
    result = await run(body, era, recorder)
    assert result.structured_content == {"result": "Hm. {'at': 1} toolUse m"}
    ((step_id, asked),) = recorder.asked
    assert step_id == "t/sample.1"
    assert (asked.messages[0].text, asked.system_prompt, asked.max_tokens) == (
        "Why?",
        "Be brief.",
        7,
    )
    assert (asked.tools, asked.tool_choice) == ((LOOK,), "required")
    assert asked.model_preferences == {"hints": [{"name": "small"}]}
    assert (asked.temperature, asked.stop_sequences) == (0.5, ("END",))
    assert (asked.include_context, asked.metadata) == ("thisServer", {"user": "u1"})


@both_eras
async def test_one_block_and_several_are_both_answers(era: Era) -> None:
    async def body(ctx: BranchContext) -> str:
        return (await ctx.sample("Why?")).text

    one = Recorder(SampleReply(content=(TextBlock(text="So."),), model="m"))
    two = Recorder(
        SampleReply(content=(TextBlock(text="So "), TextBlock(text="it is.")), model="m")
    )
    assert (await run(body, era, one)).structured_content == {"result": "So."}
    assert (await run(body, era, two)).structured_content == {"result": "So it is."}


@both_eras
async def test_a_question_arrives_with_its_context(era: Era) -> None:
    async def body(ctx: BranchContext) -> str:
        answer = await ctx.elicit(Confirm, "Sure?", context={"price": 5}, key="sure")
        return answer.action

    recorder = Recorder(ElicitReply(action="accept", content={"ok": True}))
    assert (await run(body, era, recorder)).structured_content == {"result": "accept"}
    ((step_id, asked),) = recorder.asked
    assert (step_id, asked.message, asked.context) == ("sure", "Sure?", {"price": 5})
    assert asked.requested_schema == {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
    }


async def test_a_context_that_is_none_does_no_harm() -> None:
    """The protocol allows a server to put any value there."""
    server: MCPServer[None] = MCPServer("other")
    form = types.ElicitRequestFormParams(
        message="Sure?", requested_schema={"type": "object", "properties": {}}
    )
    asks: types.InputRequests = {"a": types.ElicitRequest(params=form)}

    @server.tool()
    async def ask(context: Context[Any, Any]) -> types.CallToolResult | types.InputRequiredResult:
        if context.input_responses is None:
            meta = {"anabranch/context": ["a"]}
            return types.InputRequiredResult(input_requests=asks, request_state="s", _meta=meta)
        return types.CallToolResult(content=[])

    recorder = Recorder(ElicitReply(action="decline"))
    async with connect(server, recorder, era="modern") as client:
        assert not (await call_tool(client, "ask", {}, recorder)).is_error
    ((_, asked),) = recorder.asked
    assert (asked.message, asked.context) == ("Sure?", None)


@both_eras
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_an_address_arrives(era: Era, action: Any) -> None:
    async def body(ctx: BranchContext) -> str:
        return (await ctx.elicit_url("Please pay.", "https://pay.example/1")).action

    recorder = Recorder(ElicitReply(action=action))
    assert (await run(body, era, recorder)).structured_content == {"result": action}
    ((step_id, asked),) = recorder.asked
    assert isinstance(asked, UrlRequest)
    assert (asked.message, asked.url) == ("Please pay.", "https://pay.example/1")
    assert asked.elicitation_id
    assert step_id == "t/url.1"


@both_eras
async def test_logs_and_progress_arrive(era: Era) -> None:
    async def body(ctx: BranchContext) -> str:
        await ctx.log("warning", "careful")
        await ctx.notify("half", 1, 2)
        return "done"

    recorder = Recorder()
    await run(body, era, recorder)
    assert recorder.notices == [("warning", "careful"), ("half", 1, 2)]


@pytest.mark.parametrize("what", ["sample", "elicit"])
async def test_an_error_reaches_the_tool_in_the_handshake_era(what: str) -> None:
    async def body(ctx: BranchContext) -> str:
        try:
            await (ctx.sample("?") if what == "sample" else ctx.elicit(Confirm, "?"))
        except StepFailed as failed:
            return f"{failed.error}: {failed.detail} {failed.data}"
        return "no error"

    error = AnswerError("not today", -32001, data=["on Mondays"])
    result = await run(body, "handshake", Recorder(error))
    assert result.structured_content == {"result": "-32001: not today ['on Mondays']"}


@pytest.mark.parametrize("what", ["sample", "elicit"])
async def test_an_error_ends_the_call_in_the_modern_era(what: str) -> None:
    async def body(ctx: BranchContext) -> str:
        await (ctx.sample("?") if what == "sample" else ctx.elicit(Confirm, "?"))
        return "never"

    server, recorder = create_server("test", [tool(name="t")(body)]), Recorder(AnswerError("no"))
    async with connect(server, recorder, era="modern") as client:
        with pytest.raises(MCPError, match="no") as raised:
            await call_tool(client, "t", {}, recorder)
    assert raised.value.error.code == types.INTERNAL_ERROR


@both_eras
@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        (Capabilities(), {"sampling", "sampling.tools", "elicitation"}),
        (Capabilities(sampling_tools=False), {"sampling", "elicitation"}),
        (Capabilities(sampling=False), {"elicitation"}),
        (
            Capabilities(sampling_context=True),
            {"sampling", "sampling.tools", "sampling.context", "elicitation"},
        ),
        (Capabilities(elicitation=False, elicitation_url=False), {"sampling", "sampling.tools"}),
    ],
)
async def test_only_answerable_capabilities_are_declared(
    era: Era, capabilities: Capabilities, declared: set[str]
) -> None:
    server: MCPServer[None] = MCPServer("other")

    @server.tool()
    def names(context: Context[Any, Any]) -> list[str]:
        found = context.client_capabilities
        assert found is not None
        there = {
            "sampling": found.sampling,
            "sampling.tools": found.sampling and found.sampling.tools,
            "sampling.context": found.sampling and found.sampling.context,
            "elicitation": found.elicitation,
        }
        return [name for name, value in there.items() if value is not None]

    answerer = Recorder(capabilities=capabilities)
    async with connect(server, answerer, era=era) as client:
        result = await call_tool(client, "names", {}, answerer)
    assert set(result.structured_content["result"]) == declared


async def test_questions_of_another_projects_server_may_have_no_step_id() -> None:
    server: MCPServer[None] = MCPServer("other")

    @server.tool()
    async def ask(context: Context[Any, Any]) -> str:
        return (await context.elicit("Sure?", Confirm)).action

    recorder = Recorder()
    async with connect(server, recorder, era="handshake") as client:
        await call_tool(client, "ask", {}, recorder)
    assert [step_id for step_id, _ in recorder.asked] == [""]


async def test_in_the_modern_era_the_key_of_the_round_names_the_step() -> None:
    server: MCPServer[None] = MCPServer("other")

    @server.tool()
    async def ask(context: Context[Any, Any]) -> types.InputRequiredResult | str:
        if context.input_responses:
            return "asked"
        params = types.ElicitRequestFormParams(
            message="Who?", requested_schema={"type": "object", "properties": {}}
        )
        return types.InputRequiredResult(
            input_requests={"user_name": types.ElicitRequest(params=params)}
        )

    recorder = Recorder()
    async with connect(server, recorder, era="modern") as client:
        await call_tool(client, "ask", {}, recorder)
    assert [step_id for step_id, _ in recorder.asked] == ["user_name"]


async def test_a_sample_that_cannot_be_read_is_answered_with_an_error() -> None:
    """The protocol allows a resource link in a tool's result; this library has no type for one."""
    server: MCPServer[None] = MCPServer("other")
    link = types.ResourceLink(type="resource_link", uri="file:///a", name="a")
    result = types.ToolResultContent(type="tool_result", tool_use_id="u1", content=[link])
    use = types.ToolUseContent(type="tool_use", id="u1", name="look", input={})

    @server.tool()
    async def ask(context: Context[Any, Any]) -> str:
        params = types.CreateMessageRequestParams(
            messages=[
                types.SamplingMessage(role="assistant", content=[use]),
                types.SamplingMessage(role="user", content=[result]),
            ],
            max_tokens=5,
        )
        try:
            await context.session.send_request(
                types.CreateMessageRequest(params=params), types.CreateMessageResult
            )
        except MCPError as error:
            return error.error.message
        return "no error"

    recorder = Recorder()
    async with connect(server, recorder, era="handshake") as client:
        called = await call_tool(client, "ask", {}, recorder)
    assert called.structured_content["result"].startswith("this client cannot read the request: ")
    assert recorder.asked == []


def paging(*pages: types.ListToolsResult) -> Server[Any]:
    """Return a server whose list of tools has several pages; the cursor is a page's number."""

    async def list_pages(
        ctx: ServerRequestContext[Any, Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return pages[int(params.cursor) if params is not None and params.cursor else 0]

    return Server("paging", on_list_tools=list_pages)


def page(name: str, cursor: str | None) -> types.ListToolsResult:
    found = types.Tool(name=name, input_schema={"type": "object"})
    return types.ListToolsResult(tools=[found], next_cursor=cursor)


@pytest.mark.parametrize(
    "pages", [[page("a", "1"), page("b", None)], [page("a", "1"), page("b", "0")]]
)
async def test_all_pages_of_tools_are_listed_when_cursors_form_a_circle(
    pages: list[types.ListToolsResult],
) -> None:
    async with connect(paging(*pages), Recorder(), era="handshake") as client:
        assert list(await list_tools(client)) == ["a", "b"]


class Resume(types.RequestParams):
    saga_token: str


class Sagas(Extension):
    identifier = "com.example/sagas"

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("tools/resumeSaga", Resume, self.resume)]

    async def resume(self, ctx: object, params: Resume) -> dict[str, Any]:
        if params.saga_token == "":
            raise MCPError(types.INVALID_PARAMS, "Invalid or expired token")
        return {}


@both_eras
async def test_a_server_with_saga_methods_is_distinguished_from_one_without(era: Era) -> None:
    async with connect(MCPServer("plain"), Recorder(), era=era) as client:
        assert not await offers_sagas(client)
    async with connect(MCPServer("sagas", extensions=[Sagas()]), Recorder(), era=era) as client:
        assert await offers_sagas(client)
