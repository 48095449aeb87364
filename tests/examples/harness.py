"""The real ``mcp.Client`` against a server of one tool, in this process.

The stand-ins for the person and for the model are the SDK's callbacks. Both are plain
functions: of the question's message, and of the last thing that was said to the model.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.client import ClientRequestContext

from anabranch.mcp import create_server
from anabranch.tool import Tool

ERAS = ["legacy", "2026-07-28"]

Person = Callable[[str], Mapping[str, Any] | None]
"""The answer to a question: accepted with this content; declined for ``None``."""

Model = Callable[[str], str | Mapping[str, Any]]
"""The reply to a prompt: a text, or the input of the first tool that was offered."""


@asynccontextmanager
async def connected(
    tool: Tool[Any], era: str, person: Person, model: Model
) -> AsyncGenerator[Client]:
    """Serve ``tool`` and connect a client of ``era`` to it."""

    async def elicit(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        content = person(params.message)
        if content is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=dict(content) or None)

    async def sample(
        context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
        last = params.messages[-1].content
        assert isinstance(last, types.TextContent)
        said = model(last.text)
        if isinstance(said, str):
            text = types.TextContent(type="text", text=said)
            return types.CreateMessageResult(role="assistant", content=text, model="test")
        assert params.tools
        use = types.ToolUseContent(
            type="tool_use", id="use", name=params.tools[0].name, input=dict(said)
        )
        return types.CreateMessageResultWithTools(
            role="assistant", content=[use], model="test", stop_reason="toolUse"
        )

    async with Client(
        create_server("examples", [tool]),
        mode=era,
        elicitation_callback=elicit,
        sampling_callback=sample,
        sampling_capabilities=types.SamplingCapability(tools=types.SamplingToolsCapability()),
    ) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    """The one text block of ``result``."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text
