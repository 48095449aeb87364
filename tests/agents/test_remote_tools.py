"""An agent calls the tools of running MCP servers of any project, whatever they send."""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import mcp_types as types
import pytest
from fastmcp import FastMCP
from mcp import StdioServerParameters
from mcp.client.stdio import get_default_environment
from mcp.server.mcpserver import Context, MCPServer

from anabranch import BranchContext, ToolError, tool
from anabranch.agents import RemoteTools, ToolNoticed, TurnLimits
from anabranch.messages import FileBlock
from tests.agents.harness import set_up
from tests.agents.remote import ERAS, OTHER, listing, outcome_of, raw, reached, result_of, using
from tests.mcp.harness import asgi, http, serving
from tests.mcp.lossy import KINDS, Lossy, booking
from tests.mcp.tool_lists import next_reading, offer_at_most

pytestmark = pytest.mark.usefixtures("found")

SET_BY_STARTING = {"LC_CTYPE", "PWD", "SHLVL", "__CF_USER_TEXT_ENCODING"}
"""Variables that a shell, an interpreter or a system adds to those of a new process."""
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@tool
async def count(ctx: BranchContext, to: int) -> str:
    """Count up."""
    for number in range(to):
        await ctx.notify(f"at {number}", number, to)
        await ctx.log("info", f"after {number}")
    return f"counted to {to}"


# -- calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["http", "in process"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_of_a_server_is_described_called_and_heard(how: str, era: Any) -> None:
    async with reached(how, serving(count)) as place, RemoteTools(place, era=era) as remote:
        setting = await set_up(using("count", to=2), tools=[remote])
        content, failed = await result_of(setting)
    assert [part.text for part in content if part.type == "text"] == ["counted to 2"]
    assert not failed
    [spec] = [each for each in setting.model.requests[0].tools or () if each.name == "count"]
    assert spec.description == "Count up."
    assert spec.input_schema["required"] == ["to"]
    notices = [event.notice for event in setting.events if isinstance(event, ToolNoticed)]
    assert [each.message for each in notices] == ["at 0", "after 0", "at 1", "after 1"]
    assert [(each.level, each.progress, each.total) for each in notices[:2]] == [
        (None, 0, 2),
        ("info", None, None),
    ]


async def test_a_server_is_started_by_its_command_and_cannot_write_to_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with RemoteTools(OTHER) as remote:
        text, failed = await outcome_of(remote, "process")
    assert int(text) != os.getpid()
    assert not failed
    assert capfd.readouterr().err == ""


async def test_a_server_that_a_command_starts_has_the_safe_variables_and_those_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ANABRANCH_KEYS", "DATABASE_URL", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "secret")
    async with RemoteTools(OTHER, env={"MAPS_KEY": "k"}) as remote:
        text, failed = await outcome_of(remote, "variables")
    assert not failed
    found: dict[str, str] = json.loads(text)
    assert found.pop("MAPS_KEY") == "k"
    assert found["PATH"] == os.environ["PATH"]
    assert "secret" not in text
    assert found.keys() <= {*get_default_environment(), *SET_BY_STARTING}


def media() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("media")

    @server.tool(structured_output=False)
    def everything() -> Any:
        """Return all kinds of content."""
        text = types.TextResourceContents(uri="file:///a", text="a file")
        link = types.ResourceLink(type="resource_link", name="b", uri="file:///b", title="B")
        return [
            types.TextContent(type="text", text="<b>bold</b>"),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.EmbeddedResource(type="resource", resource=text),
            link,
        ]

    @server.tool(structured_output=False)
    def data() -> types.CallToolResult:
        """Return structured content without a text."""
        return types.CallToolResult(content=[], structured_content={"n": 1})

    @server.tool(structured_output=False)
    def failing() -> types.CallToolResult:
        """An error of the tool."""
        text = types.TextContent(type="text", text="no such place")
        return types.CallToolResult(content=[text], is_error=True)

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_has_blocks_that_a_model_takes(era: Any) -> None:
    async with RemoteTools(media(), era=era) as remote:
        content, _ = await result_of(await set_up(using("everything"), tools=[remote]))
        assert [part.text for part in content if part.type == "text"] == [
            "<b>bold</b>",
            "a file",
            "b: file:///b\nB",
        ]
        pixel = base64.b64decode(PIXEL)
        digest = sha256(pixel).hexdigest()
        assert content[1] == FileBlock(mime_type="image/png", digest=digest, size=len(pixel))
        assert await outcome_of(remote, "data") == ('{\n  "n": 1\n}', False)
        assert await outcome_of(remote, "failing") == ("no such place", True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_refusal_of_a_server_reaches_the_model(era: Any) -> None:
    async with RemoteTools(serving(count), era=era) as remote:
        text, failed = await outcome_of(remote, "count", to="many")
    assert "to: " in text
    assert failed


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["http", "in process"])
async def test_a_cancelled_turn_reaches_the_server(how: str, era: Any) -> None:
    running, undone = asyncio.Event(), asyncio.Event()
    server: MCPServer[Any] = MCPServer("slow")

    @server.tool()
    async def wait() -> None:
        """Wait for ever."""
        running.set()
        try:
            await anyio.sleep_forever()
        finally:
            undone.set()

    async with reached(how, server) as place, RemoteTools(place, era=era) as remote:
        setting = await set_up(using("wait"), tools=[remote])
        turn = asyncio.create_task(setting.say("go"))
        await running.wait()
        turn.cancel()
        await undone.wait()
        with pytest.raises(asyncio.CancelledError):
            await turn


# -- the model of the agent ----------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_samples_count_within_the_limits_of_the_turn(era: Any) -> None:
    @tool
    async def digest(ctx: BranchContext) -> str:
        """Ask the model for too many tokens."""
        return (await ctx.sample("much " * 5_000)).text

    async with RemoteTools(serving(digest), era=era) as remote:
        limits = TurnLimits(max_tokens=2_000)
        setting = await set_up(using("digest"), tools=[remote], limits=limits)
        [content], failed = await result_of(setting)
    assert "The turn stopped: it has used" in str(content)
    assert failed
    assert len(setting.model.requests) == 2


# -- names and lists -----------------------------------------------------------------------------


def plain(name: str, schema: Any = None) -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"} if schema is None else schema)


async def test_clashing_names_get_their_servers_name_as_prefix() -> None:
    one, two = listing("one", plain("search"), plain("count")), listing("two", plain("search"))
    async with RemoteTools(one, two, era="handshake") as remote:
        agent = (await set_up(using(""), tools=[count, remote])).agent
        assert list(agent.tools) == ["branch_self", "count", "search", "one_count", "two_search"]
        assert await outcome_of(remote, "search") == ("one: search", False)
        assert await outcome_of(remote, "two_search") == ("two: search", False)


async def test_tools_are_chosen_by_name_or_pattern() -> None:
    def servers() -> list[Any]:
        one = listing("one", plain("issues_get"), plain("issues_delete"), plain("search"))
        return [one, listing("two", plain("search"), plain("count"))]

    async def names(**chosen: Any) -> list[str]:
        async with RemoteTools(*servers(), era="handshake", **chosen) as remote:
            return [each.name for each in remote.offered_tools(())]

    assert await names(only=["issues_*", "count"]) == ["issues_get", "issues_delete", "count"]
    assert await names(only=["search"]) == ["search", "two_search"]
    assert await names(without=["*_delete", "two_*"]) == ["issues_get", "search", "count"]
    assert await names(only=["issues_*"], without=["*_get"]) == ["issues_delete"]
    with pytest.raises(TypeError, match="list of names"):
        RemoteTools(only="search")


async def test_hostile_names_are_made_fit_for_providers() -> None:
    hostile = ["a b", "a\x1b[2Jb", "a_b", "<script>", "ä" * 200, "x" * 200, "\n", "../etc/passwd"]
    server = listing("ho\x1bst\nile", *map(plain, hostile))
    async with RemoteTools(server, era="handshake") as remote:
        made = remote.offered_tools(())
        assert [each.name for each in made] == [
            "a_b",
            "a_2Jb",
            "ho_st_ile_a_b",
            "script",
            "tool",
            "x" * 64,
            "ho_st_ile_tool",
            "etc_passwd",
        ]
        assert await outcome_of(remote, "script") == ("ho\x1bst\nile: <script>", False)


async def test_a_tool_without_a_valid_schema_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    unfit = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    server = listing("some", plain("good"), plain("bad\x1b", unfit))
    async with RemoteTools(server, era="handshake") as remote:
        assert [each.name for each in remote.offered_tools(())] == ["good"]
    assert "some: the tool bad\N{REPLACEMENT CHARACTER} is left out" in caplog.text


GOOD = {"name": "good", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"inputSchema": None},
        {"inputSchema": []},
        {"inputSchema": {}},
        {"inputSchema": {"type": "object", "properties": []}},
        {"inputSchema": {"type": ["object", "null"], "properties": None, "required": None}},
        {"inputSchema": {"type": "object"}, "outputSchema": {"properties": {"n": {}}}},
        {"inputSchema": {"type": "object"}, "outputSchema": "none"},
        {"outputSchema": {"type": "array", "items": {}}, "annotations": []},
        {"title": 7, "description": 7, "icons": {}, "execution": "now", "_meta": []},
    ],
    ids=json.dumps,
)
async def test_an_odd_tool_definition_is_repaired_when_its_meaning_is_plain(odd: Any) -> None:
    async with RemoteTools(raw([{"name": "odd", **odd}, GOOD])) as remote:
        made = remote.offered_tools(())
        assert [each.name for each in made] == ["odd", "good"]
        assert made[0].spec.input_schema["type"] == "object"
        assert await outcome_of(remote, "odd") == ("{}", False)


@pytest.mark.parametrize(
    "odd",
    [
        {"name": "odd", "inputSchema": True},
        {"name": "odd", "inputSchema": {"type": "string"}},
        {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": 7}}},
        {"name": ["odd"], "inputSchema": {"type": "object"}},
        {"title": "odd"},
        "odd",
        None,
    ],
    ids=json.dumps,
)
async def test_an_odd_tool_is_left_out_by_name_when_its_meaning_is_not_plain(
    odd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with RemoteTools(raw([odd, GOOD])) as remote:
        assert [each.name for each in remote.offered_tools(())] == ["good"]
        assert await outcome_of(remote, "good") == ("{}", False)
    assert "Tools are left out" in caplog.text
    name = odd.get("name", "a tool without a name") if isinstance(odd, dict) else "a tool without"
    assert str(name) in caplog.text


async def test_a_server_that_lists_no_tools_as_a_list_is_refused_in_a_sentence() -> None:
    with pytest.raises(ToolError, match="cannot be used: it answers with something that is no"):
        async with RemoteTools(raw("none")):
            raise AssertionError


PROMISING = {
    **GOOD,
    "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
SAID = [{"type": "text", "text": "Five."}]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            {"content": SAID},
            "Five.\n(The tool promises structured content, but its server has sent",
        ),
        ({"content": SAID, "structuredContent": {}}, "Five.\n(The structured content does not fit"),
        ({"content": SAID, "structuredContent": {"n": "5"}}, "Five.\n(The structured content does"),
        ({"content": [], "structuredContent": {"m": 5}}, '{\n  "m": 5\n}\n(The structured content'),
        ({"structuredContent": {"n": 5}}, '{\n  "n": 5\n}'),
        ({"content": SAID, "structuredContent": {"n": 5}}, "Five."),
    ],
    ids=json.dumps,
)
async def test_a_result_is_read_without_promised_structured_content(result: Any, text: str) -> None:
    async with RemoteTools(raw([PROMISING], result)) as remote:
        read, failed = await outcome_of(remote, "good")
    assert read.startswith(text)
    assert ("(" in read) == ("(" in text)
    assert not failed


NULLS = {
    "type": "object",
    "required": ["needed"],
    "properties": {
        "needed": {"type": "string"},
        "limit": {"type": "integer"},
        "kind": {"enum": ["a", "b"]},
        "near": {"$ref": "#/$defs/Place"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/Place"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "any": {},
    },
    "$defs": {"Place": {"type": "object", "properties": {"zip": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"needed": "x", "limit": None, "kind": None, "near": None}, {"needed": "x"}),
        (
            {"needed": "x", "either": None, "any": None},
            {"needed": "x", "either": None, "any": None},
        ),
        ({"needed": None, "limit": None}, {"needed": None}),
        (
            {"needed": "x", "near": {"zip": None}, "stops": [{"zip": None}, {"zip": "1"}]},
            {"needed": "x", "near": {}, "stops": [{}, {"zip": "1"}]},
        ),
        ({"needed": "x", "limit": "many", "kind": None}, {"needed": "x", "limit": "many"}),
        ({"needed": "x", "stops": [None]}, {"needed": "x", "stops": [None]}),
    ],
    ids=json.dumps,
)
async def test_a_null_is_left_out_when_the_schema_of_an_optional_property_has_none(
    given: Any, sent: Any
) -> None:
    async with RemoteTools(raw([{"name": "some", "inputSchema": NULLS}])) as remote:
        text, failed = await outcome_of(remote, "some", **given)
    assert json.loads(text) == sent
    assert not failed


async def test_a_tool_that_is_described_at_too_great_length_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    long = types.Tool(name="long", description="x" * 300_000, input_schema={"type": "object"})
    async with RemoteTools(listing("maps", plain("near"), long)) as remote:
        assert [each.name for each in remote.offered_tools([])] == ["near"]
    assert "the tool long is left out: it is described in 300," in caplog.text


async def test_five_hundred_tools_are_offered_and_more_than_a_thousand_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    many = listing("many", *(plain(f"tool_{n}") for n in range(500)))
    async with RemoteTools(many, era="handshake") as remote:
        setting = await set_up(using("tool_499"), tools=[remote])
        await setting.say("go")
        assert len(setting.model.requests[0].tools or ()) == 501
    offer_at_most(400, monkeypatch)
    async with RemoteTools(many, era="handshake") as remote:
        assert len(remote.offered_tools(())) == 400
    assert "lists 500 tools; only the first 400 are used" in caplog.text


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["http", "in process"])
async def test_a_changed_list_is_followed_and_names_stay_with_their_tools(
    how: str, era: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: MCPServer[Any] = MCPServer("growing")

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Offer another tool."""
        server.add_tool(lambda: "grown", name="search", description="Search.")
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        return "grown"

    other = listing("other", plain("search"))
    async with (
        reached(how, server) as place,
        RemoteTools(place, era=era) as growing,
        RemoteTools(other, era="handshake") as second,
    ):
        both = [growing, second]
        assert [each.name for each in second.offered_tools(())] == ["search"]
        changed = next_reading(monkeypatch)
        assert await outcome_of(growing, "grow") == ("grown", False)
        await changed.wait()
        agent = (await set_up(using(""), tools=both)).agent
        assert list(agent.tools) == ["branch_self", "grow", "search", "other_search"]


# -- connections ---------------------------------------------------------------------------------


async def test_a_server_that_dies_in_a_call_is_started_again_for_the_next() -> None:
    async with RemoteTools(OTHER) as remote:
        first, _ = await outcome_of(remote, "process")
        text, failed = await outcome_of(remote, "die")
        assert failed
        assert "was lost while 'die' ran, and 'die' may have finished" in text
        second, failed = await outcome_of(remote, "process")
    assert not failed
    assert int(second) != int(first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_whose_reply_is_lost_is_repeated_where_the_server_recognises_it(
    kind: str, era: Any
) -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, "memory:"), kind, 0)
    async with asgi(app) as url, RemoteTools(url, era=era) as remote:
        assert await outcome_of(remote, "plain") == ("booked", False)
    assert (effects, app.called) == (["one"], 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_whose_reply_is_lost_is_not_repeated_elsewhere(kind: str) -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, None), kind, 0)
    async with asgi(app) as url, RemoteTools(url) as remote:
        text, failed = await outcome_of(remote, "plain")
        assert "was lost while 'plain' ran" in text
        assert (failed, app.called) == (True, 1)
        assert await outcome_of(remote, "plain") == ("booked", False)
    assert effects == ["one", "one"]


async def test_a_session_that_a_server_has_forgotten_is_started_again() -> None:
    server = serving(count)
    async with http(server) as url, RemoteTools(url, era="handshake") as remote:
        await outcome_of(remote, "count", to=0)
        sessions: Any = server.session_manager
        for session in list(sessions._server_instances.values()):
            await session.terminate()
        sessions._server_instances.clear()
        assert await outcome_of(remote, "count", to=1) == ("counted to 1", False)


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("http://127.0.0.1:9/mcp", "http://127.0.0.1:9/mcp cannot be used: "),
        ("command:no-such-command --key secret", "no-such-command cannot be used: No such file"),
        (f"command:{sys.executable} -c 'raise SystemExit(\"no key\")'", "ended the .*: no key."),
    ],
    ids=["a port", "a command", "a process"],
)
async def test_an_unreachable_server_is_reported_in_a_sentence(place: str, problem: str) -> None:
    with pytest.raises(ToolError, match=problem) as caught:
        async with RemoteTools(place):
            raise AssertionError
    assert "secret" not in str(caught.value)


async def test_connected_servers_close_when_another_fails_to_connect() -> None:
    left = asyncio.Event()

    @asynccontextmanager
    async def life(_: Any) -> AsyncGenerator[None]:
        yield
        left.set()

    server: MCPServer[None] = MCPServer("some", lifespan=life)
    with pytest.raises(ToolError):
        async with RemoteTools(server, "command:no-such-command"):
            raise AssertionError
    assert left.is_set()


async def test_headers_go_to_the_server_and_errors_name_the_server_without_secrets() -> None:
    given: list[str] = []

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            given.extend(value.decode() for name, value in scope["headers"] if name == b"x-key")
        await app(scope, receive, send)

    app = serving(count).streamable_http_app()
    async with asgi(guarded) as url:
        async with RemoteTools(url, headers={"X-Key": "k1"}) as remote:
            assert await outcome_of(remote, "count", to=1) == ("counted to 1", False)
        assert set(given) == {"k1"}
        secret = url.replace("http://", "http://me:pass@") + "x?key=secret"
        with pytest.raises(ToolError, match="cannot be used") as caught:
            async with RemoteTools(secret):
                raise AssertionError
    assert "pass" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("places", "headers", "problem"),
    [
        (["ftp://example.com"], {}, "neither the URL of a server nor command:"),
        (["command:"], {}, "Write the command"),
        (["command:'"], {}, "cannot be read as a command"),
        (["http://a.example", "http://b.example"], {"X": "1"}, "Headers are for one server"),
        (["command:some"], {"X": "1"}, "Headers are for one server"),
    ],
    ids=["a scheme", "no command", "a quote", "two origins", "no url"],
)
def test_an_invalid_server_target_is_refused(
    places: list[str], headers: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        RemoteTools(*places, headers=headers)


def test_a_command_can_be_given_as_the_sdks_parameters() -> None:
    assert RemoteTools(StdioServerParameters(command="some"))


async def test_a_server_of_fastmcp_in_this_process_is_used() -> None:
    server: FastMCP[Any] = FastMCP("fast")

    @server.tool
    def greet(whom: str) -> str:
        return f"Hello, {whom}."

    async with RemoteTools(server) as remote:
        said, failed = await outcome_of(remote, "greet", whom="Ann")
    assert (said, failed) == ("Hello, Ann.", False)


@pytest.mark.parametrize("given", [["http://a.example"], 7, None])
def test_a_server_of_the_wrong_kind_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match=r"RemoteTools\(\) takes servers, each a URL, command:… to"):
        RemoteTools(given)


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"headers": ["X-Key: s3cret"]}, r"texts of headers by name, got list\. Write headers={"),
        ({"headers": "X-Key: s3cret"}, r"texts of headers by name, got str\. Write headers={"),
        (
            {"headers": {"X-Key": b"s3cret"}},
            r"texts of headers by name, got dict\. Write headers={",
        ),
        ({"env": ["KEY=s3cret"]}, r"texts of env by name, got list\. Write env={"),
        ({"limits": 5}, r"RemoteLimits as limits, got int\. Write limits=RemoteLimits\("),
        ({"era": "old"}, r"'old' as era\. Write era='auto', era='modern' or era='handshake'\."),
        ({"only": 5}, r"only= takes a list of names, got 5\. Write \['search'\]\."),
        ({"without": [5]}, r"without= takes a list of names, got \[5\]\. Write \['search'\]\."),
    ],
    ids=["list", "text", "bytes", "env", "limits", "era", "only", "without"],
)
def test_an_argument_of_the_wrong_kind_is_refused(given: dict[str, Any], refusal: str) -> None:
    with pytest.raises((TypeError, ValueError), match=refusal) as caught:
        RemoteTools("http://a.example", **given)
    assert "s3cret" not in str(caught.value)


async def test_a_turn_with_servers_that_were_never_opened_is_refused() -> None:
    here = await set_up(using("count"), tools=[RemoteTools(serving(count))])
    with pytest.raises(ToolError, match=r"RemoteTools is not connected .* inside `async with Rem"):
        await here.say("go")
