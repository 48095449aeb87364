"""A result that breaks its output schema, or is no finite JSON: the caller receives the reason."""

from typing import Any

import pytest
from fastmcp import Client as FastClient
from fastmcp import FastMCP
from fastmcp.utilities.types import File
from fastmcp.utilities.types import Image as FastImage
from mcp import Client
from mcp.server.mcpserver import Image, MCPServer
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, RootModel

from anabranch import BranchContext, Elicitation, run_tool, tool
from anabranch.errors import ToolError
from anabranch.mcp import as_fastmcp_tool, create_server, fastmcp_sagas
from anabranch.mcp._saga_client import SagaClient
from anabranch.testing import MockClient
from tests.mcp.fastmcp_server import called, serving
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, text_of
from tests.sagas.harness import call_saga


class Seat(BaseModel):
    row: int


@tool
async def wrong(_: BranchContext) -> Seat:
    """Return another type than the annotation promises."""
    return {"row": "password=hunter2"}  # type: ignore[return-value]


@tool
async def endless(_: BranchContext, depth: int) -> list[Any]:
    """Return deeply nested lists, or a list that contains itself."""
    outermost: list[Any] = []
    inner = outermost
    for _number in range(depth):
        inner.append([])
        inner = inner[0]
    if not depth:
        outermost.append(outermost)
    return outermost


@tool
async def unmeasured(_: BranchContext) -> dict[str, float]:
    """Return a number that JSON cannot express."""
    return {"mean": float("nan")}


@tool
async def photograph(_: BranchContext) -> Image:
    """Return a file that is missing."""
    return Image("/nowhere/secret.png")


@tool
async def album(_: BranchContext) -> dict[str, Any]:
    """Return a file in an object, which no result can hold."""
    return {"cover": Image(data=b"a")}


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("wrong", {}, "does not fit its output schema: row: Input should be a valid integer"),
    ("endless", {"depth": 300}, "is nested too deeply"),
    ("endless", {"depth": 5_000}, "is nested too deeply"),
    ("endless", {"depth": 0}, "refers to itself"),
    ("unmeasured", {}, "cannot be JSON: NaN and Infinity are no numbers of JSON"),
    ("photograph", {}, "holds a file that cannot be read (FileNotFoundError)"),
    ("album", {}, "holds an object of type Image. Return a file alone or in a list"),
]


def server() -> MCPServer[Any]:
    return create_server("unfit", [wrong, endless, unmeasured, photograph, album])


@pytest.mark.parametrize(("name", "arguments", "words"), CASES)
@pytest.mark.parametrize("mode", [MODERN, HANDSHAKE])
async def test_a_caller_gets_the_reason_for_an_unfit_result(
    mode: Any, name: str, arguments: dict[str, Any], words: str
) -> None:
    async with Client(server(), mode=mode) as client:
        result = await client.call_tool(name, arguments)
    check(result, words)


@pytest.mark.parametrize(("name", "arguments", "words"), CASES)
async def test_a_saga_caller_gets_the_reason_for_an_unfit_result(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    async with Client(server(), mode=MODERN) as client:
        check(await SagaClient(client, MockClient()).call_tool(name, arguments), words)


@pytest.mark.parametrize(("name", "arguments", "words"), CASES)
async def test_a_fastmcp_caller_gets_the_reason_for_an_unfit_result(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    host = FastMCP("unfit")
    for each in (wrong, endless, unmeasured, photograph, album):
        host.add_tool(as_fastmcp_tool(each))
    async with FastClient(host) as client:
        result = await client.call_tool(name, arguments, raise_on_error=False)
    check(result, words)


def check(result: Any, words: str) -> None:
    assert result.is_error
    text = result.content[0].text
    assert words in text
    assert "hunter2" not in text
    assert "secret" not in text
    assert "\n" not in text


@pytest.mark.parametrize("kind", [Image, FastImage, File], ids=["sdk", "fastmcp", "file"])
@pytest.mark.parametrize("listed", [False, True])
async def test_a_call_with_an_unreadable_file_undoes_its_steps(kind: Any, listed: bool) -> None:
    undone: list[str] = []

    @tool
    async def photograph(ctx: BranchContext) -> Any:
        await ctx.step(str, "camera", undo=undone.append)
        file = kind(path="/nowhere/secret.png")
        return ["seen", file] if listed else file

    with pytest.raises(ToolError, match=r"holds a file that cannot be read \(FileNotFoundError\)"):
        await run_tool(photograph, {}, MockClient())
    assert undone == ["camera"]


@tool
async def sorry(_: BranchContext, kind: str) -> Seat:
    """Return a whole result in place of a seat."""
    results: dict[str, Any] = {
        "error": {"is_error": True},
        "seat": {"structured_content": {"row": 1}},
        "no seat": {"structured_content": {"row": "password=hunter2"}},
    }
    text = TextContent(type="text", text="Sorry.")
    return CallToolResult(content=[text], **results[kind])  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "said"), [("error", "Sorry."), ("seat", "Sorry."), ("no seat", "")]
)
@pytest.mark.parametrize("mode", [MODERN, HANDSHAKE])
async def test_a_whole_result_replaces_the_annotated_value(mode: Any, kind: str, said: str) -> None:
    async with Client(create_server("unfit", [sorry]), mode=mode) as client:
        result = await client.call_tool("sorry", {"kind": kind})
    assert result.is_error == (kind != "seat")
    if said:
        assert text_of(result) == said
    else:
        check(result, "does not fit its output schema: row")


@pytest.mark.parametrize("kind", ["error", "seat"])
async def test_a_whole_result_of_a_fastmcp_server_replaces_the_annotated_value(kind: str) -> None:
    host = FastMCP("unfit")
    host.add_tool(as_fastmcp_tool(sorry))
    async with FastClient(host) as client:
        result = await client.call_tool("sorry", {"kind": kind}, raise_on_error=False)
    assert (result.is_error, text_of(result)) == (kind == "error", "Sorry.")


async def test_an_error_result_is_an_error_of_its_saga() -> None:
    async with Client(create_server("unfit", [sorry]), mode=MODERN) as client:
        result = await call_saga(client, "sorry", {"kind": "error"})
    assert result["isError"]


async def test_an_error_result_is_an_error_of_a_saga_of_fastmcp() -> None:
    host = serving(as_fastmcp_tool(sorry))
    host.add_extension(fastmcp_sagas())
    async with called(host, MODERN, Answers()) as client:
        result = await call_saga(client, "sorry", {"kind": "error"})
    assert result["isError"]


def test_a_form_that_contains_itself_is_refused() -> None:
    class Tree(RootModel[list["Tree"]]):
        pass

    with pytest.raises(TypeError, match="refers to itself"):
        Elicitation("tree", Tree)
