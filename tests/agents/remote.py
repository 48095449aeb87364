"""Running MCP servers, an agent that calls one tool of such a server, and the outcome of that call."""

import json
import shlex
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server import Server

from anabranch.agents import RemoteTools
from anabranch.messages import ResultBlock, SampleRequest, ToolResultBlock
from anabranch.testing import calls as calling
from tests.agents.harness import Setting, set_up
from tests.mcp.harness import http

ERAS = ["handshake", "auto"]
OTHER = f"command:{sys.executable} -m tests.agents.remote_server"


@asynccontextmanager
async def reached(how: str, server: Any) -> AsyncGenerator[Any]:
    """Return the target for a client of a server: its URL, or the server itself."""
    if how == "http":
        async with http(server) as url:
            yield url
    else:
        yield server


def raw(tools: Any, *results: Any) -> str:
    """Return the command of a server that lists and returns this JSON."""
    given = [sys.executable, "-m", "tests.agents.raw_server", *map(json.dumps, (tools, *results))]
    return f"command:{shlex.join(given)}"


def using(name: str, **arguments: Any) -> Any:
    """A model that calls one tool, and then repeats its result."""

    def decide(request: SampleRequest) -> Any:
        last = request.messages[-1].content[0]
        if isinstance(last, ToolResultBlock):
            return "done"
        return calling(("use", name, arguments))

    return decide


async def result_of(setting: Setting) -> tuple[tuple[ResultBlock, ...], bool]:
    """Return the result of the one tool, and whether the tool failed."""
    node = await setting.say("go")
    path = await setting.agent.store.path(node.id)
    [result] = path.results.values()
    return result.content, result.is_error


async def outcome_of(source: RemoteTools, name: str, **arguments: Any) -> tuple[str, bool]:
    setting = await set_up(using(name, **arguments), tools=[source])
    content, failed = await result_of(setting)
    return "".join(part.text for part in content if part.type == "text"), failed


def listing(name: str, *tools: types.Tool) -> Server[Any]:
    async def listed(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(tools))

    async def called(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = types.TextContent(type="text", text=f"{name}: {params.name}")
        return types.CallToolResult(content=[text])

    return Server(name, on_list_tools=listed, on_call_tool=called)
