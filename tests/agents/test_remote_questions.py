"""Questions of MCP servers become the conversation's questions, which outlive turns and processes."""

import json
import re
from dataclasses import replace
from typing import Any

import mcp_types as types
import pytest
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, tool
from anabranch.agents import Agent, RemoteTools, question_of
from anabranch.messages import ElicitReply, ElicitRequest, SampleRequest, UrlRequest
from anabranch.testing import MockModel
from anabranch.tree import Node, open_questions, tree_to_json
from tests.agents.harness import Answering
from tests.agents.memory import MemoryTrees
from tests.agents.remote import ERAS, OTHER, raw, reached, using
from tests.durable.stores import Modelled
from tests.mcp.harness import asgi, http, serving

pytestmark = pytest.mark.usefixtures("found")

ASKABLE = Capabilities()


class Seats(BaseModel):
    n: int


class Words(BaseModel):
    text: str


@tool
async def book(ctx: BranchContext) -> str:
    """Ask twice, and sample in between."""
    first = await ctx.elicit(Seats, "How many?")
    named = await ctx.sample("a name")
    second = await ctx.elicit(Words, f"For whom, {named.text}?")
    given = [
        a.content.model_dump() if isinstance(a, Accepted) else a.action for a in (first, second)
    ]
    return json.dumps(given)


@tool
async def at_once(ctx: BranchContext) -> str:
    """Ask two questions and sample at the same time."""
    left, right, said = await ctx.gather(
        ctx.elicit(Seats, "Left?", key="left"),
        ctx.elicit(Seats, "Right?", key="right"),
        ctx.sample("a name"),
    )
    return f"{left.action} {right.action} {said.text}"


@tool
async def visit(ctx: BranchContext) -> str:
    """Send the user to an address."""
    return (await ctx.elicit_url("Please pay.", "https://pay.example/1")).action


def decide(name: str) -> Any:
    calling = using(name)

    def reply(request: SampleRequest) -> Any:
        return "Ida" if request.messages[-1].text == "a name" else calling(request)

    return MockModel(reply)


class Place:
    """A conversation on a store, which any number of agents lead, one after the other."""

    def __init__(self, name: str, store: MemoryTrees | None = None) -> None:
        self.store = store or MemoryTrees()
        self.name = name
        self.thread = ""

    def agent(self, remote: RemoteTools, **options: Any) -> Agent:
        given: dict[str, Any] = {"capabilities": ASKABLE, **options}
        return Agent(self.store, decide(self.name), tools=[remote], **given)

    async def begin(self, remote: RemoteTools, **options: Any) -> Node:
        agent = self.agent(remote, **options)
        self.thread = (await agent.begin()).id
        return await agent.say(self.thread, "go")

    async def asked(self) -> list[Node]:
        return open_questions(await self.store.tree(self.thread))

    async def answer(self, remote: RemoteTools, question: Node, **content: Any) -> Node:
        reply = ElicitReply(action="accept", content=content)
        return await self.agent(remote).answer(question.id, reply)

    async def result(self, node: Node) -> str:
        path = await self.store.path(node.id)
        [result] = {use: each for (_, use), each in path.results.items()}.values()
        return "".join(part.text for part in result.content if part.type == "text")


def fill(question: Any) -> ElicitReply:
    assert isinstance(question, ElicitRequest)
    content: Any = {"n": 2} if "n" in question.requested_schema["properties"] else {"text": "me"}
    return ElicitReply(action="accept", content=content)


@pytest.mark.parametrize("how", ["http", "in process"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_present_user_answers_immediately(how: str, era: Any) -> None:
    async with reached(how, serving(book)) as place, RemoteTools(place, era=era) as remote:
        here = Place("book")
        end = await here.begin(remote, user=Answering(fill))
    assert await here.result(end) == '[{"n": 2}, {"text": "me"}]'
    asked = [
        node.text for node in (await here.store.tree(here.thread)).nodes if node.kind == "question"
    ]
    assert asked == ["How many?", "For whom, Ida?"]


@pytest.mark.parametrize("how", ["http", "in process"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_turn_ends_at_a_question_and_another_agent_continues(how: str, era: Any) -> None:
    async with reached(how, serving(book)) as place, RemoteTools(place, era=era) as remote:
        here = Place("book")
        last = await here.begin(remote)
        assert last.kind == "question"
        [first] = await here.asked()
        await here.answer(remote, first, n=1)
        [second] = await here.asked()
        assert second.text == "For whom, Ida?"
        end = await here.answer(remote, second, text="you")
    assert await here.result(end) == '[{"n": 1}, {"text": "you"}]'


async def test_a_question_of_the_modern_era_outlives_the_process_that_was_asked() -> None:
    async with http(serving(book)) as url:
        here = Place("book")
        async with RemoteTools(url) as remote:
            await here.begin(remote)
        async with RemoteTools(url) as remote:
            [first] = await here.asked()
            await here.answer(remote, first, n=1)
        async with RemoteTools(url) as remote:
            [second] = await here.asked()
            end = await here.answer(remote, second, text="you")
            assert await here.result(end) == '[{"n": 1}, {"text": "you"}]'
            other = await here.answer(remote, first, n=7)
            assert other.kind == "question"
            [third] = await here.asked()
            assert third.id not in {first.id, second.id}
            end = await here.answer(remote, third, text="them")
            assert await here.result(end) == '[{"n": 7}, {"text": "them"}]'


async def test_a_question_of_a_server_is_answered_after_a_change_of_the_agents_code() -> None:
    async with RemoteTools(serving(book)) as remote:
        here, calls = Place("book"), Modelled()
        await here.begin(remote, calls=calls, code_version="1")
        [first] = await here.asked()
        reply = ElicitReply(action="accept", content={"n": 1})
        agent = here.agent(remote, calls=calls, code_version="2")
        assert (await agent.answer(first.id, reply)).text == "For whom, Ida?"


async def test_a_question_of_the_handshake_era_ends_with_its_connection_and_says_so() -> None:
    async with http(serving(book)) as url:
        here = Place("book")
        async with RemoteTools(url, era="handshake") as remote:
            await here.begin(remote)
        async with RemoteTools(url, era="handshake") as remote:
            [question] = await here.asked()
            end = await here.answer(remote, question, n=1)
    assert "over a connection that has ended" in await here.result(end)


@pytest.mark.parametrize("era", ERAS)
async def test_simultaneous_questions_are_open_at_the_same_time(era: Any) -> None:
    async with RemoteTools(serving(at_once), era=era) as remote:
        here = Place("at_once")
        await here.begin(remote)
        asked = await here.asked()
        assert sorted(node.text for node in asked) == ["Left?", "Right?"]
        ends = [await here.answer(remote, question, n=1) for question in asked]
    end = ends[-1]
    assert await here.result(end) == "accept accept Ida"


@pytest.mark.parametrize("era", ERAS)
async def test_a_user_is_sent_to_an_address(era: Any) -> None:
    async with RemoteTools(serving(visit), era=era) as remote:
        here = Place("visit")

        def consent(question: Any) -> ElicitReply:
            assert isinstance(question, UrlRequest)
            assert question.url == "https://pay.example/1"
            return ElicitReply(action="accept")

        end = await here.begin(remote, user=Answering(consent))
    assert await here.result(end) == "accept"


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_an_agent_cannot_ask_is_declined(era: Any) -> None:
    async with RemoteTools(serving(book), era=era) as remote:
        here = Place("book")
        end = await here.begin(remote, capabilities=replace(ASKABLE, elicitation=False))
    assert await here.result(end) == '["decline", "decline"]'


@pytest.mark.parametrize("era", ERAS)
async def test_skipped_questions_are_cancelled_at_the_server(era: Any) -> None:
    async with RemoteTools(serving(book), era=era) as remote:
        here = Place("book")
        last = await here.begin(remote)
        end = await here.agent(remote).cancel_questions(last)
    assert await here.result(end) == '["cancel", "cancel"]'


async def test_an_export_has_no_state_of_a_server() -> None:
    async with RemoteTools(serving(book)) as remote:
        here = Place("book")
        await here.begin(remote)
        [question] = await here.asked()
        [state] = re.findall(r'"state":"([^"]+)"', str(question.data["state"]))
        assert state not in json.dumps(tree_to_json(await here.store.tree(here.thread)))


def foreign() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("foreign")

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Words)
        return f"{answer.action} {answer.data.text if answer.action == 'accept' else ''}"

    return server


def fast() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("fast")

    @server.tool
    async def ask(ctx: FastContext) -> str:
        answer = await ctx.elicit("Which?", Words)
        return f"{answer.action} {answer.data.text if answer.action == 'accept' else ''}"

    return server


@pytest.mark.parametrize("make", [foreign, fast])
async def test_servers_of_other_projects_ask(make: Any) -> None:
    server = make()
    app = server.http_app() if isinstance(server, FastMCP) else server.streamable_http_app()
    async with asgi(app) as url, RemoteTools(url, era="handshake") as remote:
        here = Place("ask")
        await here.begin(remote)
        [question] = await here.asked()
        end = await here.answer(remote, question, text="that")
    assert await here.result(end) == "accept that"


@pytest.mark.parametrize("where", ["http", "stdio"])
async def test_conversations_that_share_a_connection_do_not_share_questions(where: str) -> None:
    async with http(foreign()) as url:
        place = url if where == "http" else OTHER
        async with RemoteTools(place, era="handshake") as remote:
            one, two = Place("ask"), Place("ask")
            await one.begin(remote)
            ended = await two.begin(remote)
            if where == "stdio":  # no request says which conversation asks
                assert "the request names none" in await two.result(ended)
            else:
                [question] = await two.asked()
                end = await two.answer(remote, question, text="two")
                assert await two.result(end) == "accept two"
            [question] = await one.asked()
            end = await one.answer(remote, question, text="one")
            assert await one.result(end) == "accept one"


def asking(schema: dict[str, Any], era: str) -> Server[Any]:
    """Return a server of one tool that asks with the given schema, and returns the answer."""
    given: Any = schema
    request = types.ElicitRequest(
        params=types.ElicitRequestFormParams(message="What?", requested_schema=given)
    )

    async def listed(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name="ask", input_schema={"type": "object"})]
        )

    async def called(ctx: Any, params: types.CallToolRequestParams) -> Any:
        answer: Any
        if era == "handshake":
            answer = await ctx.session.send_request(request, types.ElicitResult)
        elif params.input_responses is None:
            return types.InputRequiredResult(input_requests={"a": request}, request_state="s")
        else:
            answer = params.input_responses["a"]
        text = types.TextContent(type="text", text=json.dumps(answer.content))
        return types.CallToolResult(content=[text])

    return Server("asking", on_list_tools=listed, on_call_tool=called)


HOSTILE = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "title": "<b>A</b>", "pattern": "(a+)+$", "$ref": "#"},
        "b": {"type": "integer", "minimum": 1},
    },
    "required": ["a"],
    "allOf": [{"$ref": "#"}],
}


@pytest.mark.parametrize("era", ERAS)
async def test_only_the_protocols_keys_of_a_form_are_shown_and_checked(era: Any) -> None:
    async with RemoteTools(asking(HOSTILE, era), era=era) as remote:
        here = Place("ask")
        await here.begin(remote)
        [question] = await here.asked()
        request = question_of(question)
        assert isinstance(request, ElicitRequest)
        assert request.requested_schema == {
            "type": "object",
            "properties": {
                "a": {"type": "string", "title": "<b>A</b>", "description": "matches (a+)+$"},
                "b": {"type": "integer", "minimum": 1},
            },
            "required": ["a"],
        }
        end = await here.answer(remote, question, a="x")
    assert await here.result(end) == '{"a": "x"}'


FIELDS: dict[str, Any] = {
    "size": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}], "default": None},
    "level": {"oneOf": [{"const": 1, "title": "Low"}, {"const": 2, "title": "High"}]},
}
SIZES = {"type": "string", "enum": ["s", "m"]}
REFERRING = {"type": "object", "properties": FIELDS, "$defs": {"Size": SIZES}}
ASKS = {
    "resultType": "input_required",
    "inputRequests": {
        "a": {
            "method": "elicitation/create",
            "params": {"mode": "form", "message": "What?", "requestedSchema": REFERRING},
        }
    },
    "requestState": "s",
}
TOOLS = [{"name": "ask", "inputSchema": {"type": "object"}}]


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_of_references_null_and_numbers_is_asked(era: Any) -> None:
    # A modern server of the SDK would drop the definitions of its form.
    server = asking(REFERRING, era) if era == "handshake" else raw(TOOLS, ASKS)
    async with RemoteTools(server, era=era) as remote:
        here = Place("ask")
        await here.begin(remote)
        [question] = await here.asked()
        request = question_of(question)
        assert isinstance(request, ElicitRequest)
        assert request.requested_schema["properties"] == {
            "size": {**SIZES, "default": None},
            "level": {"type": "integer", "oneOf": FIELDS["level"]["oneOf"]},
        }
        end = await here.answer(remote, question, level=2)
    assert '{"level": 2}' in await here.result(end)


@pytest.mark.parametrize("era", ERAS)
async def test_a_form_that_cannot_be_shown_is_refused(era: Any) -> None:
    nested = {"type": "object", "properties": {"a": {"type": "object"}}}
    async with RemoteTools(asking(nested, era), era=era) as remote:
        here = Place("ask")
        end = await here.begin(remote)
    assert "form that cannot be shown" in await here.result(end)
