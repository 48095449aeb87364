"""Calls one tool as an MCP client: the work of ``anabranch call``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import anyio
from mcp import Client
from mcp_types import CallToolResult, TextContent, Tool

from anabranch._asking import Answerer, AnsweringPolicy
from anabranch._budget import UNLIMITED, Limits
from anabranch._schemas import UnusableSchemaError, check_schema
from anabranch._terminal import NO_MODEL, FailedError, Respondent
from anabranch._text import read_json
from anabranch.cli._answering import read_arguments
from anabranch.cli._call_trace import CallTrace
from anabranch.cli._connection import open_session, server_of
from anabranch.cli._options import Era, ReachOptions
from anabranch.cli._targets import is_server, no_such_tool
from anabranch.mcp import (
    PAUSES,
    UNFINISHED,
    Remembering,
    call_tool,
    is_lost,
    is_unfinished,
    list_tools,
    new_key,
    takes_key,
)

UNASKABLE = "server-initiated requests"
"""A part of the error of the SDK and of FastMCP if their own tools ask over MCP 2026-07-28."""
RAISES = (
    "Its library has no other way to ask: call it with --era handshake, or see"
    ' "Migrate from the MCP SDK or FastMCP" in the documentation.'
)


async def call(  # noqa: PLR0913 - the options of the command
    target: str,
    name: str,
    respondent: Respondent,
    *,
    pairs: Sequence[str] = (),
    json_text: str | None = None,
    era: Era = "auto",
    policy: AnsweringPolicy = AnsweringPolicy(),
    limits: Limits = UNLIMITED,
    reach: ReachOptions = ReachOptions(),
    verbose: bool = False,
) -> object:
    key = new_key()
    policed = policy.applied_to(respondent, server=target)
    answerer, repeats = Remembering(policed), False

    async def act(client: Client) -> object:
        nonlocal repeats
        tool = await find_tool(client, target, name)
        repeats = takes_key(tool)
        arguments = read_arguments(pairs, json_text, tool.input_schema)
        with policed.calling(tool.name):
            result = await invoke(client, era, tool.name, arguments, answerer, key)
        return value_of(result, tool)

    server = server_of(target, limits, reach)
    pauses = iter(PAUSES)
    try:
        while True:
            try:
                trace = CallTrace(respondent.say) if verbose else None
                value = await open_session(target, server, answerer, act, era=era, trace=trace)
            except FailedError as error:
                pause = next(pauses, None) if repeats and is_lost(error.__cause__) else None
                if pause is None:
                    raise
                await respondent.log("warning", "The connection was lost; the request is repeated.")
                await anyio.sleep(pause)
            else:
                respondent.require_fitting()
                return value
    except FailedError as error:
        if not respondent.capabilities.sampling and "'sampling" in str(error):
            raise FailedError(f"{error} To have one here, {NO_MODEL}.") from error
        if UNASKABLE in str(error):
            raise FailedError(f"{error} {RAISES}") from error
        raise
    finally:
        respondent.report_left()


async def invoke(
    client: Client,
    era: Era,
    name: str,
    arguments: dict[str, Any],
    answerer: Answerer,
    key: str = "",
) -> CallToolResult:
    if era == "saga":
        from anabranch.mcp import SagaClient

        return await SagaClient(client, answerer).call_tool(name, arguments, key=key or None)
    return await call_tool(client, name, arguments, answerer, key=key)


async def find_tool(client: Client, target: str, name: str) -> Tool:
    tools = await list_tools(client)
    if name not in tools:
        raise no_such_tool(target, name, tools)
    try:
        if is_server(target):  # our server of a file or module has made its schemas
            check_schema(tools[name].input_schema)
    except UnusableSchemaError as error:
        unfit = (
            f"The parameters of {name!r} have no valid schema ({error}): its server is at fault."
        )
        raise FailedError(unfit) from error
    return tools[name]


def value_of(result: CallToolResult, tool: Tool) -> object:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if result.is_error:
        raise FailedError(text or f"The tool {tool.name} failed without a message.")
    if is_unfinished(result.structured_content):
        raise FailedError(text)
    if result.structured_content is not None:
        return _unwrapped(result.structured_content, tool)
    if not result.content:
        return None
    if _is_wrapped(tool):
        return text  # a saga's text comes without structured content
    if len(texts) < len(result.content):
        return [
            block.model_dump(mode="json", by_alias=True, exclude_none=True)
            for block in result.content
        ]
    try:
        return cast("object", read_json(text))
    except ValueError:
        return text


def _unwrapped(content: object, tool: Tool) -> object:
    if not isinstance(content, dict):
        return content
    fields = cast("dict[str, object]", content)
    return fields["result"] if _is_wrapped(tool) else fields


def _is_wrapped(tool: Tool) -> bool:
    """Whether the server wraps values: the SDK names the schema's title, FastMCP marks it."""
    schema = tool.output_schema or {}
    title = str(schema.get("title", ""))
    named = title.endswith("Output") and title[:1].islower()
    fields = {*schema.get("properties", {})} - {UNFINISHED}
    return bool(schema.get("x-fastmcp-wrap-result") or (named and fields == {"result"}))
