"""A lone surrogate, as in the name of a file that is not UTF-8, in each output of a server.

No wire can carry a lone surrogate. The server escapes it where text leaves the process, and
continues.
"""

import json
import sys
from typing import Any

import anyio
import mcp_types as types
import pytest
from fastmcp import FastMCP
from mcp import MCPError, StdioServerParameters
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, ToolError, tool
from anabranch._asking import Absent
from anabranch._text import checked_name, encodable
from anabranch.mcp import install_fastmcp
from anabranch.mcp._client import call_tool, connect
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, ROOT, Answers, accept, connected, echo, http, serving, text_of
from tests.patience import PATIENCE
from tests.sagas.harness import call_saga

NAME = "caf\udce9"
ESCAPED = "caf\\udce9"


class Found(BaseModel):
    name: str


@tool(description=f"Finds {NAME}.")
async def find(ctx: BranchContext, how: str, given: str = "") -> Any:
    match how:
        case "text":
            return NAME
        case "list":
            return [{NAME: (NAME,)}, Found(name=NAME)]
        case "error":
            raise ToolError(NAME)
        case "protocol error":
            raise MCPError(-32000, NAME, {"name": NAME})
        case "question":
            answer = await ctx.elicit(Ok, NAME, context={"name": NAME})
            return answer.action
        case "sample":
            return (await ctx.sample(NAME)).text
        case "notices":
            await ctx.log("info", NAME)
            await ctx.notify(NAME)
            return NAME
        case _:
            return [given]


WAYS = ["text", "list", "error", "protocol error", "question", "sample", "notices"]


async def found_over(server: Any, era: str) -> str:
    answers, found = Answers(lambda _: accept(ok=True), echo), list[object]()
    with anyio.fail_after(PATIENCE):
        async with connected(server, era, answers) as client:
            for how in WAYS:
                try:
                    result: object = await client.call_tool(
                        "find", {"how": how}, progress_callback=answers.on_progress
                    )
                except MCPError as error:
                    result = error.error
                found.append(result)
            found += [await call_saga(client, "find", {"how": how}) for how in ("text", "question")]
            found += (await client.list_tools()).tools
    shown = [each.model_dump() if isinstance(each, BaseModel) else each for each in found]
    return repr([shown, [each.model_dump() for each in answers.asked], answers.logs])


def _require_escaped(text: str) -> None:
    assert "udce9" in text
    assert "Error executing tool find'" not in text
    assert ESCAPED.encode().decode() in text.replace("\\\\", "\\")


@pytest.mark.parametrize("era", ERAS)
async def test_a_stdio_server_continues_after_a_lone_surrogate(era: str) -> None:
    process = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.mcp.test_surrogates"], cwd=ROOT
    )
    _require_escaped(await found_over(process, era))


@pytest.mark.parametrize("era", ERAS)
async def test_an_http_server_escapes_a_lone_surrogate(era: str) -> None:
    async with http(serving(find)) as url:
        _require_escaped(await found_over(url, era))


@pytest.mark.parametrize("era", ERAS)
async def test_a_fastmcp_server_escapes_a_lone_surrogate(era: str) -> None:
    server = FastMCP("files")
    install_fastmcp(server, find)
    inner = server._mcp_server
    async with connected(inner, era, Answers(lambda _: accept(ok=True))) as client:
        result = await client.call_tool("find", {"how": "list"})
        with pytest.raises(MCPError, match=r"caf.udce9"):
            await client.call_tool("find", {"how": "protocol error"})
    assert json.loads(text_of(result)) == [{ESCAPED: [ESCAPED]}, {"name": ESCAPED}]


class User(Absent):
    capabilities = Capabilities()

    async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
        return ElicitReply(action="accept", content={"ok": True, NAME: NAME})


@pytest.mark.parametrize("era", ["modern", "handshake"])
async def test_our_client_sends_only_encodable_text(era: Any) -> None:
    process = StdioServerParameters(
        command=sys.executable, args=["-m", "tests.mcp.test_surrogates"], cwd=ROOT
    )
    user = User()
    with anyio.fail_after(PATIENCE):
        async with connect(process, user, era=era) as client:
            result = await call_tool(client, "find", {"how": "", "given": NAME}, user)
            asked = await call_tool(client, "find", {"how": "question"}, user)
    assert json.loads(text_of(result)) == [ESCAPED]
    assert not asked.is_error


def test_a_key_cannot_have_one() -> None:
    with pytest.raises(ValueError, match="Unicode"):
        checked_name(NAME, "key")


def test_encodable_values_are_not_copied() -> None:
    value = {"a": ["é", (1, 2)], "b": Found(name="x")}
    assert encodable(value) is value
    assert encodable(types.TextContent(type="text", text=NAME)).text == ESCAPED


if __name__ == "__main__":
    serving(find).run("stdio")
