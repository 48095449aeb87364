"""``anabranch call``: one tool, called as an MCP client, its questions answered from here.

Owns the course of a call, and what becomes of its result. Who answers is decided by
``respondent.py``, how a server is reached by ``connection.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mcp import Client
from mcp_types import CallToolResult, TextContent, Tool

from anabranch._asking.sampling import Sampler
from anabranch._terminal.answer_file import Answers
from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.respondent import NO_MODEL, Respondent
from anabranch.cli._connection import Era, server_of, talk
from anabranch.cli._tool_arguments import read_arguments
from anabranch.mcp._client import call_tool, list_tools
from anabranch.mcp._saga_client import SagaClient
from anabranch.models import ModelError, open_model

__all__ = ["Wish", "call", "invoke", "open_sampler", "read_answers", "to_json", "value_of"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be called, as it was typed."""

    target: str
    tool: str
    pairs: Sequence[str] = ()
    json_text: str | None = None
    era: Era = "auto"


async def call(wish: Wish, respondent: Respondent) -> object:
    """Call the tool and return its value.

    Raises:
        CommandError: see the message.
    """

    async def act(client: Client) -> object:
        tool = await choose_tool(client, wish)
        arguments = read_arguments(wish.pairs, wish.json_text, tool.input_schema)
        return value_of(await invoke(client, wish.era, tool.name, arguments, respondent), tool)

    try:
        return await talk(wish.target, server_of(wish.target), respondent, act, era=wish.era)
    except FailedError as error:
        if not respondent.capabilities.sampling and "'sampling" in str(error):
            raise FailedError(f"{error} To have one here, {NO_MODEL}.") from error
        raise
    finally:
        respondent.report_left()


async def invoke(
    client: Client, era: Era, name: str, arguments: dict[str, Any], respondent: Respondent
) -> CallToolResult:
    """Call a tool in the way of ``era``, to which ``client`` is connected already."""
    if era == "saga":
        return await SagaClient(client, respondent).call_tool(name, arguments)
    return await call_tool(client, name, arguments, respondent)


async def choose_tool(client: Client, wish: Wish) -> Tool:
    """Return the tool that is wished for.

    Raises:
        UsageError: the server has no such tool.
    """
    tools = await list_tools(client)
    if wish.tool not in tools:
        offered = ", ".join(tools) or "nothing"
        raise UsageError(f"{wish.target} has no tool {wish.tool!r}. It offers: {offered}.")
    return tools[wish.tool]


def open_sampler(model: str | None) -> Sampler | None:
    """Return the model of that name, ``None`` without one.

    Raises:
        UsageError: it cannot be opened.
    """
    try:
        return open_model(model) if model else None
    except ModelError as error:
        raise UsageError(str(error)) from error


def read_answers(path: Path | None) -> Answers | None:
    """Return the answers of a file, ``None`` without one.

    Raises:
        UsageError: it cannot be read.
    """
    return Answers.from_file(path) if path is not None else None


def value_of(result: CallToolResult, tool: Tool) -> object:
    """Return what the tool returned: its structured content if it has any, else its text.

    Raises:
        FailedError: it returned an error.
    """
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    text = "\n".join(texts)
    if result.is_error:
        raise FailedError(text or f"The tool {tool.name} failed without a word.")
    if result.structured_content is not None:
        return _unwrapped(result.structured_content, tool)
    if _is_wrapped(tool):
        return text  # a saga's: only a text comes without its structured content
    if len(texts) < len(result.content):
        return [
            block.model_dump(mode="json", by_alias=True, exclude_none=True)
            for block in result.content
        ]
    try:
        return cast("object", json.loads(text))
    except ValueError:
        return text


def _unwrapped(content: object, tool: Tool) -> object:
    """Return a value that a server had to put into an object, because it is none."""
    if not isinstance(content, dict):
        return content
    fields = cast("dict[str, object]", content)
    return fields["result"] if _is_wrapped(tool) else fields


def _is_wrapped(tool: Tool) -> bool:
    """Whether the tool's values are put into objects.

    The SDK names the wrapping's schema after the tool's function, FastMCP marks it.
    """
    schema = tool.output_schema or {}
    title = str(schema.get("title", ""))
    named = title.endswith("Output") and title[:1].islower()
    return bool(
        schema.get("x-fastmcp-wrap-result")
        or (named and list(schema.get("properties", {})) == ["result"])
    )


def to_json(value: object) -> str:
    """Return what is printed: JSON, readable, in letters that stdout can take."""
    encodable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    return json.dumps(value, indent=2, ensure_ascii=not encodable)


def new_respondent(console: Console, model: str | None, answers: Path | None) -> Respondent:
    """Return who answers, as the options say.

    Raises:
        UsageError: the model or the answers cannot be opened.
    """
    return Respondent(console, sampler=open_sampler(model), answers=read_answers(answers))
