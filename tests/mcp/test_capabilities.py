"""Servers ask a client only for capabilities that the client has declared.

Source: MCP 2026-07-28, error -32021.
"""

from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError

from anabranch import BranchContext, CapabilityError, ToolSpec, tool
from anabranch.mcp._protocol import capabilities_of
from anabranch.tool import Tool
from tests.mcp.asking import Ok
from tests.mcp.harness import (
    ERAS,
    HANDSHAKE,
    MODERN,
    Answers,
    accept,
    connected,
    echo,
    http,
    serving,
    text_of,
)


@tool
async def sampling(ctx: BranchContext) -> str:
    return (await ctx.sample("Hello")).text


@tool
async def sampling_tools(ctx: BranchContext) -> str:
    """Ask the model to use a tool."""
    spec = ToolSpec(name="look", input_schema={"type": "object"})
    return (await ctx.sample("Hello", tools=[spec])).text


@tool
async def elicitation(ctx: BranchContext) -> str:
    return (await ctx.elicit(Ok, "Ok?")).action


@tool
async def elicitation_url(ctx: BranchContext) -> str:
    return (await ctx.elicit_url("Pay there", "https://pay.example/1")).action


LACKING: dict[str, tuple[Tool[Any], Answers, dict[str, Any]]] = {
    "sampling": (sampling, Answers(elicit=lambda _: accept(ok=True)), {"sampling": {}}),
    "sampling.tools": (
        sampling_tools,
        Answers(sample=echo, sampling_tools=False),
        {"sampling": {"tools": {}}},
    ),
    "elicitation": (elicitation, Answers(sample=echo), {"elicitation": {"form": {}}}),
}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("order", [1, -1])
async def test_nothing_is_asked_next_to_a_question_that_the_client_cannot_answer(
    era: str, order: int
) -> None:
    @tool
    async def several(ctx: BranchContext) -> str:
        """Ask the user twice, and the model."""
        asks = [ctx.elicit(Ok, "One?"), ctx.elicit(Ok, "Two?"), ctx.sample("Hello")]
        try:
            await ctx.gather(*asks[::order])
        except CapabilityError as missing:
            return missing.capability
        return "all were answered"

    answers = Answers(elicit=lambda _: accept(ok=True))
    async with connected(serving(several), era, answers) as client:
        assert text_of(await client.call_tool("several")) == "sampling"
    assert answers.asked == []


@pytest.mark.parametrize("options", [{"json_response": True}, {"stateless_http": True}])
async def test_a_capability_that_a_connection_cannot_carry_counts_as_missing(
    options: dict[str, bool],
) -> None:
    """Excludes a step that runs before a plain error: handshake-era sessions may have no way to ask."""
    ran: list[str] = []

    @tool(requires=["elicitation"])
    async def demanding(ctx: BranchContext) -> str:
        ran.append("demanding")
        return (await ctx.elicit(Ok, "Ok?")).action

    @tool
    async def modest(ctx: BranchContext) -> str:
        try:
            return (await ctx.elicit(Ok, "Ok?")).action
        except CapabilityError:
            return "without"

    answers = Answers(elicit=lambda _: accept(ok=True))
    async with (
        http(serving(demanding, modest), **options) as url,
        connected(url, HANDSHAKE, answers) as client,
    ):
        refused = await client.call_tool("demanding")
        assert text_of(await client.call_tool("modest")) == "without"
    assert refused.is_error
    assert "this connection cannot carry questions to the client" in text_of(refused)
    assert (ran, answers.asked) == ([], [])


@pytest.mark.parametrize("name", LACKING)
async def test_the_error_for_modern_clients_names_the_capabilities_to_declare(name: str) -> None:
    asks, answers, required = LACKING[name]
    async with connected(serving(asks), MODERN, answers) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool(asks.name)
    error = refused.value.error
    assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY == -32021
    assert error.data == {"requiredCapabilities": required}
    assert repr(name) in error.message


@pytest.mark.parametrize("name", LACKING)
async def test_handshake_clients_get_a_tool_error_with_the_missing_capability(name: str) -> None:
    asks, answers, _ = LACKING[name]
    async with connected(serving(asks), HANDSHAKE, answers) as client:
        result = await client.call_tool(asks.name)
    assert result.is_error
    assert f"This tool needs {name!r}, which the client did not declare" in text_of(result)


def test_a_declaration_promises_its_capabilities() -> None:
    """``elicitation: {}`` means forms; an empty declaration promises nothing."""
    forms = types.ElicitationCapability()
    links = types.ElicitationCapability(url=types.UrlElicitationCapability())
    both = types.ElicitationCapability(
        form=types.FormElicitationCapability(), url=types.UrlElicitationCapability()
    )
    tools = types.SamplingCapability(tools=types.SamplingToolsCapability())
    context = types.SamplingCapability(context=types.SamplingContextCapability())
    promised: list[tuple[types.ClientCapabilities | None, set[str]]] = [
        (None, set()),
        (types.ClientCapabilities(), set()),
        (types.ClientCapabilities(elicitation=forms), {"elicitation"}),
        (types.ClientCapabilities(elicitation=links), {"elicitation.url"}),
        (types.ClientCapabilities(elicitation=both), {"elicitation", "elicitation.url"}),
        (types.ClientCapabilities(sampling=types.SamplingCapability()), {"sampling"}),
        (types.ClientCapabilities(sampling=tools), {"sampling", "sampling.tools"}),
        (types.ClientCapabilities(sampling=context), {"sampling", "sampling.context"}),
    ]
    for declared, names in promised:
        assert capabilities_of(declared).names() == names


@pytest.mark.parametrize("era", ERAS)
async def test_a_url_is_shown_and_consent_is_all_that_comes_back(era: str) -> None:
    answers = Answers(lambda _: accept())
    async with connected(serving(elicitation_url), era, answers) as client:
        result = await client.call_tool("elicitation_url")
    assert text_of(result) == "accept"
    (asked,) = answers.asked
    assert (asked.mode, asked.message, asked.url) == ("url", "Pay there", "https://pay.example/1")
    assert (asked.elicitation_id is None) == (era == MODERN)
