"""The sealed state: who may open it, for which request, and how long. Every refusal has one
message.

Source: SEP-2322, rule 4; design, "What a client sends is hostile".
"""

import logging
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server import request_state
from mcp.server.mcpserver import MCPServer, RequestStateSecurity
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.mcp import create_server, install
from anabranch.tool import Tool
from tests.mcp.asking import YES, Ok
from tests.mcp.harness import KEY, MODERN, Answers, call_once, connected, plaintext, sealed, serving

OLD, NEW = "the old secret, long enough for a key", "the new secret, long enough for a key"
ANSWERS = Answers(lambda _: None)


def asking(name: str = "ask", ran: list[str] | None = None) -> Tool[str]:
    @tool(name=name)
    async def body(ctx: BranchContext, what: str = "it", again: bool = False) -> str:
        if ran is not None:
            ran.append(name)
        answer = await ctx.elicit(Ok, f"Do {what}?")
        if again:
            await ctx.elicit(Ok, "Sure?")
        return answer.action if isinstance(answer, Accepted) else "no"

    return body


async def opened(client: Client, name: str = "ask", **arguments: Any) -> str:
    reply = await call_once(client, name, arguments)
    state: str = reply["requestState"]
    return state


async def answered(client: Client, state: Any, name: str = "ask", **arguments: Any) -> Any:
    responses = {f"{name}/elicit.1": YES}
    reply = await call_once(client, name, arguments, state=state, responses=responses)
    return reply["structuredContent"]["result"]


async def assert_refused(client: Client, state: Any, name: str = "ask", **arguments: Any) -> None:
    with pytest.raises(MCPError) as refused:
        await call_once(client, name, arguments, state=state, responses={f"{name}/elicit.1": YES})
    assert refused.value.error.code == -32602
    assert refused.value.error.message == "Invalid or expired requestState"
    assert refused.value.error.data == {"reason": "invalid_request_state"}


async def test_a_state_can_be_sent_several_times_without_a_store() -> None:
    """Without a store a client can send a state several times (SEP-2322, rule 4)."""
    async with connected(serving(asking()), MODERN, ANSWERS) as client:
        state = await opened(client)
        assert await answered(client, state) == "accept"
        assert await answered(client, state) == "accept"


@pytest.mark.parametrize("state", [17, True, ["v1."], {"v": 1}, 1.5])
async def test_a_state_that_is_no_text_is_refused(state: Any) -> None:
    async with connected(serving(asking()), MODERN, ANSWERS) as client:
        with pytest.raises(MCPError) as refused:
            await call_once(client, "ask", state=state)
    assert refused.value.error.code == -32602


async def test_keys_rotate_while_questions_are_open() -> None:
    before = create_server("s", [asking()], keys=[OLD])
    during = create_server("s", [asking()], keys=[NEW, OLD])
    after = create_server("s", [asking()], keys=[NEW])
    async with connected(before, MODERN, ANSWERS) as client:
        state = await opened(client, again=True)
    async with connected(after, MODERN, ANSWERS) as client:
        await assert_refused(client, state, again=True)
    async with connected(during, MODERN, ANSWERS) as client:
        reply = await call_once(
            client, "ask", {"again": True}, state=state, responses={"ask/elicit.1": YES}
        )
    async with connected(after, MODERN, ANSWERS) as client:
        last = await call_once(
            client,
            "ask",
            {"again": True},
            state=reply["requestState"],
            responses={"ask/elicit.2": YES},
        )
    assert last["structuredContent"] == {"result": "accept"}


async def test_without_keys_each_server_has_its_own() -> None:
    async with connected(create_server("s", [asking()]), MODERN, ANSWERS) as client:
        state = await opened(client)
        assert await answered(client, state) == "accept"
    async with connected(create_server("s", [asking()]), MODERN, ANSWERS) as client:
        await assert_refused(client, state)


def test_a_short_key_is_refused_when_the_server_is_made() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        create_server("s", [asking()], keys=["short"])


async def test_a_state_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(serving(asking(), ttl=60), MODERN, ANSWERS) as client:
        state = await opened(client)
        later = time.time() + 61
        monkeypatch.setattr(request_state, "time", SimpleNamespace(time=lambda: later))
        await assert_refused(client, state)


async def test_a_state_of_another_release_is_refused_like_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A deployment during a call must end in a clean error; the server's log has the reason."""
    ran: list[str] = []
    async with connected(serving(asking(ran=ran)), MODERN, ANSWERS) as client:
        state = await opened(client)
        ran.clear()
        packed, _, rest = plaintext(state).partition(" ")
        assert re.match(r"\[\d,", rest)
        with caplog.at_level(logging.WARNING, "anabranch"):
            await assert_refused(client, sealed(state, f"{packed} [0,{rest[3:]}"))
    assert ran == []
    assert "a state was refused" in caplog.text


async def test_a_tool_that_no_longer_asks_an_answered_question_ends_with_a_clear_error() -> None:
    @tool(name="ask")
    async def changed(ctx: BranchContext, what: str = "it", again: bool = False) -> str:
        return what

    async with connected(serving(asking()), MODERN, ANSWERS) as client:
        state = await opened(client)
    async with connected(serving(changed), MODERN, ANSWERS) as client:
        reply = await call_once(client, "ask", state=state, responses={"ask/elicit.1": YES})
    assert reply["isError"]
    assert "Replay differs at 'ask/elicit.1'" in reply["content"][0]["text"]


async def test_an_installed_tool_is_sealed_by_its_servers_own_keys() -> None:
    def made() -> MCPServer[Any]:
        server: MCPServer[Any] = MCPServer(
            "mine", request_state_security=RequestStateSecurity(keys=[OLD])
        )
        install(server, asking())
        return server

    async with connected(made(), MODERN, ANSWERS) as client:
        state = await opened(client)
    async with connected(made(), MODERN, ANSWERS) as client:
        assert await answered(client, state) == "accept"


class Words(BaseModel):
    text: str


@tool
async def talk(ctx: BranchContext) -> int:
    """Ask three times; return the total length of the answers."""
    said = [await ctx.elicit(Words, "?") for _ in range(3)]
    return sum(len(each.content.text) for each in said if isinstance(each, Accepted))


def words(reply: dict[str, Any], length: int) -> dict[str, Any]:
    (step,) = reply["inputRequests"]
    content = {"text": "x" * length}
    return {
        "state": reply["requestState"],
        "responses": {step: {"action": "accept", "content": content}},
    }


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_the_content_of_a_state_is_bounded(store: str | None) -> None:
    """Forty answers of 3.9 MB once made a token of 281 KB that held 156 MB."""
    server = create_server("s", [talk], keys=[KEY], store=store, max_state=100_000)
    async with connected(server, MODERN, Answers(elicit=print)) as client:
        reply = await call_once(client, "talk")
        reply = await call_once(client, "talk", **words(reply, 60_000))
        refused = await call_once(client, "talk", **words(reply, 60_000))
        assert refused["isError"]
        assert "limit of 100000 bytes" in refused["content"][0]["text"]
        reply = await call_once(client, "talk", **words(reply, 20_000))
        reply = await call_once(client, "talk", **words(reply, 10))
    assert reply["structuredContent"] == {"result": 80_010}


async def test_a_store_keeps_the_content_of_a_large_state() -> None:
    server = create_server("s", [talk], keys=[KEY], store="memory:")
    async with connected(server, MODERN, Answers(elicit=print)) as client:
        first = await call_once(client, "talk")
        second = await call_once(client, "talk", **words(first, 300_000))
    assert not plaintext(first["requestState"]).startswith("@")
    assert plaintext(second["requestState"]).startswith("@")
