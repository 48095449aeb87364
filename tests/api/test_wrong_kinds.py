"""Public functions check the kind of each argument first: the error names the given and the
expected kind.
"""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, Cancelled, Elicitation, HandoffTool, run_tool, tool
from anabranch._asking import Absent
from anabranch.agents import Agent
from anabranch.chat import ChatClient, Plugin, PluginAnswerer, make_chat_app, make_plugin
from anabranch.mcp import as_fastmcp_tool, create_server
from anabranch.models import as_sampler, open_model
from anabranch.rounds import Rounds
from anabranch.stores import open_tree_store
from anabranch.testing import MockClient, MockModel

STORE: Any = open_tree_store("memory:")
MODEL: Any = MockModel(lambda _: "Done.")


async def book(ctx: BranchContext) -> str:
    """A function that could be a tool, without the decorator."""
    return "booked"


class Form(BaseModel):
    approve: bool


class Trip(HandoffTool):
    """A class whose instances are tools."""

    def before(self) -> str:
        return ""

    async def client(self, handoff: str, ctx: BranchContext) -> str:
        return handoff

    def after(self, handoff: str, picked: str) -> str:
        return picked


BOOK: Any = tool(book)
ANY: Any = object()
FUNCTION: Any = book
CLASS: Any = Trip
KEYS = ["0123456789abcdef0123456789abcdef"]
FORM = Elicitation("form", Form)


@tool(elicits=[FORM])
async def ask(ctx: BranchContext) -> str:
    return str(await ctx.elicit(FORM, "Well?"))


ASKING: Any = ask
PLUGIN: Any = make_plugin(ask).on_elicit([(FORM, lambda _: Cancelled())]).build()

WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a function as a plugin's tool": (
        lambda: make_plugin(FUNCTION),
        r"make_plugin\(\) takes a tool, .*@tool.*; it was given the function 'book'",
    ),
    "a class as a plugin's tool": (
        lambda: Plugin(CLASS, {}),
        r"Plugin\(\) takes a tool, .*; it was given the class Trip",
    ),
    "a model to be opened": (
        lambda: open_model(MODEL),
        r"open_model\(\) takes the name of a model, .*; it was given an object of type MockModel",
    ),
    "nothing to be opened": (lambda: open_model(None), "; it was given None"),  # type: ignore[arg-type]
    "an object as an agent's model": (
        lambda: Agent(STORE, ANY),
        r"Agent\(\) takes a model .*open_model.*; it was given an object of type object",
    ),
    "a name as an agent's model": (
        lambda: Agent(STORE, "anthropic:claude"),  # type: ignore[arg-type]
        "open_model.*; it was given the text 'anthropic:claude'",
    ),
    "a name as a model that is open": (
        lambda: as_sampler("anthropic:claude"),
        r"as_sampler\(\) takes a Model of pydantic-ai.*open_model.*; it was given the text 'anthropic",
    ),
    "nothing as a model that is open": (
        lambda: as_sampler(None),
        r"as_sampler\(\) takes a Model of pydantic-ai.*; it was given None",
    ),
    "a URL as an agent's store": (
        lambda: Agent("sqlite:///trees.db", MODEL),  # type: ignore[arg-type]
        r"takes a store of conversations .*open_tree_store.*; it was given the text 'sqlite:",
    ),
    "an agent's store and model, changed round": (
        lambda: Agent(MODEL, STORE),
        "takes a store of conversations .*; it was given an object of type MockModel",
    ),
    "a list as an agent's capabilities": (
        lambda: Agent(STORE, MODEL, capabilities=["sampling"]),  # type: ignore[arg-type]
        r"takes Capabilities.*; it was given the list \['sampling'\]",
    ),
    "a function among an agent's tools": (
        lambda: Agent(STORE, MODEL, tools=[FUNCTION]),
        "takes tools.*; it was given the function 'book'",
    ),
    "one tool as an agent's tools": (
        lambda: Agent(STORE, MODEL, tools=BOOK),
        "takes a list of tools; it was given an object of type FunctionTool",
    ),
    "a name as an application's model": (
        lambda: make_chat_app(STORE, "anthropic:claude"),  # type: ignore[arg-type]
        "takes a model .*; it was given the text",
    ),
    "a function among a server's tools": (
        lambda: create_server("shop", [FUNCTION]),
        r"create_server\(\) takes tools.*; it was given the function 'book'",
    ),
    "one tool as a server's tools": (
        lambda: create_server("shop", BOOK),
        "takes a list of tools; it was given an object of type FunctionTool",
    ),
    "annotations as the protocol writes them": (
        lambda: tool(annotations={"readOnlyHint": True})(book),  # type: ignore[call-overload]
        r"Tool 'book': annotations= takes ToolAnnotations\(…\); it was given the dict",
    ),
    "a number as limits": (
        lambda: tool(limits=5)(book),  # type: ignore[call-overload]
        r"Tool 'book': limits= takes Limits\(…\); it was given the int 5",
    ),
    "a form among declared questions": (
        lambda: tool(elicits=[Form])(book),  # type: ignore[list-item]
        r"Tool 'book': elicits= takes a list of Elicitation\(key, Model\); .* the class Form",
    ),
    "a form as the declared questions": (
        lambda: tool(elicits=Form)(book),  # type: ignore[call-overload]
        r"elicits= takes a list of Elicitation\(key, Model\); it was given the class Form",
    ),
    "limits of a tool in phases": (
        type("Hasty", (Trip,), {"limits": 5}),
        r"Tool 'hasty': limits= takes Limits\(…\); it was given the int 5",
    ),
    "a plugin among an agent's tools": (
        lambda: Agent(STORE, MODEL, tools=[PLUGIN]),
        "it was given an object of type Plugin. Give an agent plugin.server.tools, a ChatClient",
    ),
    "a plugin among a server's tools": (
        lambda: create_server("shop", [PLUGIN]),
        "it was given an object of type Plugin. .* and an MCP server plugin.mcp",
    ),
    "a plugin as a client's plugin": (
        lambda: ChatClient("http://127.0.0.1", plugins=[PLUGIN]),
        "plugins= takes plugin.client of each plugin; it was given an object of type Plugin",
    ),
    "one plugin as an answerer's plugins": (
        lambda: PluginAnswerer(STORE, PLUGIN),
        r"PluginAnswerer\(\) takes a list of plugins; it was given an object of type Plugin",
    ),
    "a plugin as an agent's user": (
        lambda: Agent(STORE, MODEL, user=PLUGIN),
        r"Agent\(\) takes an answerer as user, .*PluginAnswerer.*; it was given an object",
    ),
    "one tool as an application's tools": (
        lambda: make_chat_app(STORE, MODEL, BOOK),
        r"make_chat_app\(\) takes a list of tools; it was given an object of type FunctionTool",
    ),
    "an answer as a plugin's handler": (
        lambda: Plugin(ASKING, {FORM: True}),  # type: ignore[dict-item]
        "The question 'form' takes a function of the request; it was given the bool True",
    ),
    "a form as the question of a plugin": (
        lambda: Plugin(ASKING, {Form: FUNCTION}),  # type: ignore[dict-item]
        "The plugin for tool 'ask' takes handlers .* by elicitation, .* given the class Form",
    ),
    "replies as the function of a model": (
        lambda: MockModel(["Done."]),  # type: ignore[arg-type]
        r"MockModel\(\) takes a function of the request; .*ScriptedModel.*; it was given the list",
    ),
    "a name as a sampler": (
        lambda: Rounds(keys=KEYS, sampler="openai:gpt"),  # type: ignore[arg-type]
        r"Rounds\(\) takes a model as sampler, .*; it was given the text 'openai:gpt'",
    ),
    "a time to live of rounds in words": (
        lambda: Rounds(keys=KEYS, ttl="1 day"),  # type: ignore[arg-type]
        r"Rounds\(\) takes a number of seconds as ttl; it was given the text '1 day'",
    ),
    "a partial as a tool": (
        lambda: tool(partial(book)),
        "@tool takes an async function with a name; it was given an object of type partial",
    ),
    "a time to live in words": (
        lambda: create_server("shop", [BOOK], ttl="10m"),  # type: ignore[arg-type]
        "ttl= takes a number of seconds; it was given the text '10m'",
    ),
    "a duration": (
        lambda: create_server("shop", [BOOK], grace=timedelta(minutes=1)),  # type: ignore[arg-type]
        "grace= takes a number of seconds; it was given an object of type timedelta",
    ),
    "a function for FastMCP": (
        lambda: as_fastmcp_tool(FUNCTION),
        r"takes tools.*; it was given the function 'book'",
    ),
}


async def test_an_iterator_of_tools_is_read_completely() -> None:
    """The check of an iterator's items must not consume the iterator."""
    assert list(Agent(STORE, MODEL, tools=(each for each in [BOOK])).tools) == ["book"]
    server = create_server("shop", iter([BOOK]))
    assert [each.name for each in await server.list_tools()] == ["book"]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_kind_raises_one_sentence_immediately(what: str) -> None:
    give, said = WRONG[what]
    with pytest.raises(TypeError, match=said) as refused:
        give()
    assert str(refused.value).count(".\n") == 0
    assert str(refused.value).endswith(".")


async def test_a_function_is_no_tool_to_be_run() -> None:
    with pytest.raises(TypeError, match=r"run_tool\(\) takes a tool, .*the function 'book'"):
        await run_tool(FUNCTION)


@pytest.mark.parametrize("client", [MockClient(), Absent()])
async def test_run_tool_says_where_the_client_goes_when_it_stands_for_the_arguments(
    client: Any,
) -> None:
    with pytest.raises(TypeError) as refused:
        await run_tool(ask, client)
    assert str(refused.value) == (
        "The second parameter of run_tool() holds the arguments; give the client as the third, or as"
        " client=."
    )


@pytest.mark.parametrize(
    ("client", "given"), [({"nights": 2}, "the dict {'nights': 2}"), (MockClient, "MockClient")]
)
async def test_run_tool_refuses_a_client_that_cannot_answer(client: Any, given: str) -> None:
    with pytest.raises(
        TypeError, match=r"run_tool\(\) takes an Answerer as client, .*given "
    ) as no:
        await run_tool(ask, {}, client)
    assert given in str(no.value)


def test_a_wrong_argument_is_shown_in_short() -> None:
    with pytest.raises(TypeError) as refused:
        open_model(["x" * 1000])  # type: ignore[arg-type]
    assert len(str(refused.value)) < 300


def test_every_right_kind_is_accepted() -> None:
    assert create_server("shop", [BOOK, Trip()])
    assert Agent(STORE, MODEL, tools=[BOOK])
