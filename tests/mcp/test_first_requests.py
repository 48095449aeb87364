"""A first request, repeated under its idempotency key, is the same call over every edge."""

from collections.abc import Mapping
from typing import Any, cast

import httpx2
import mcp_types as types
import pytest
from mcp import MCPError

from anabranch import BranchContext, tool
from anabranch.tool import Tool
from tests.mcp.asking import Ok
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, accept, connected, http
from tests.mcp.hosts import created, installed, on_fastmcp
from tests.patience import PATIENCE
from tests.sagas.harness import raw, signed_in

META = "anabranch/idempotency-key"
TAKES = "anabranch/takes-idempotency-key"
CAPABILITIES: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}


def booking(keys: list[str], *, name: str = "book") -> Tool[str]:
    @tool(name=name)
    async def body(ctx: BranchContext, seat: int = 1, ask: bool = True) -> str:
        await ctx.step(keys.append, ctx.idempotency_key)
        if ask:
            await ctx.elicit(Ok, "Book it?")
        return f"seat {seat}"

    return body


def served(keys: list[str], make: Any = created, **options: Any) -> Any:
    tools = booking(keys), booking(keys, name="hold")
    return make(*tools, **{"store": "memory:", **options})


EDGES = {
    "rounds": (MODERN, "tools/call"),
    "saga": (MODERN, "tools/callSaga"),
    "live saga": (HANDSHAKE, "tools/callSaga"),
    "live": (HANDSHAKE, "tools/call"),
}
USER = Answers(lambda _: accept(ok=True))


def first(key: object, name: str = "book", **arguments: Any) -> dict[str, Any]:
    """Return the parameters of a first request under ``key``."""
    return {"name": name, "arguments": arguments, "_meta": {META: key}}


def text_in(reply: Mapping[str, Any]) -> Any:
    """Return the text of a reply: the result's text, or its questions."""
    return reply.get("content") or reply.get("steps") or reply.get("inputRequests")


@pytest.mark.parametrize("make", [created, installed, on_fastmcp])
@pytest.mark.parametrize("edge", EDGES)
async def test_a_repeated_first_request_is_the_same_call(make: Any, edge: str) -> None:
    era, method = EDGES[edge]
    keys: list[str] = []
    async with connected(served(keys, make), era, USER) as client:
        replies = [await raw(client, method, first("k-1")) for _ in range(2)]
        assert text_in(replies[0])
        assert text_in(replies[0]) == text_in(replies[1])
        assert len(keys) == 1
        await raw(client, method, first("k-2"))
    assert len(set(keys)) == 2


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("other", [{"name": "hold"}, {"seat": 2}])
async def test_the_key_of_another_request_is_refused_and_nothing_is_run(
    edge: str, other: dict[str, Any]
) -> None:
    era, method = EDGES[edge]
    keys: list[str] = []
    async with connected(served(keys), era, USER) as client:
        await raw(client, method, first("k-1"))
        with pytest.raises(MCPError, match="another request has used it") as refused:
            await raw(client, method, first("k-1", **other))
        assert refused.value.error.code == -32602
        assert refused.value.error.data == {"reason": "idempotency_key"}
        assert len(keys) == 1
        await raw(client, method, first("k-1"))
    assert len(keys) == 1


async def test_a_key_of_one_edge_is_refused_at_another_that_cannot_repeat_its_reply() -> None:
    keys: list[str] = []
    async with connected(served(keys), MODERN, USER) as client:
        await raw(client, "tools/call", first("k-1"))
        with pytest.raises(MCPError, match="another kind of request"):
            await raw(client, "tools/callSaga", first("k-1"))
    assert len(keys) == 1


NO_KEYS: list[object] = ["", "x" * 256, "two words", "é", "new\nline", 7, None, ["k"]]


@pytest.mark.parametrize("edge", EDGES)
async def test_an_invalid_key_is_refused(edge: str) -> None:
    era, method = EDGES[edge]
    keys: list[str] = []
    async with connected(served(keys), era, USER) as client:
        for key in NO_KEYS:
            with pytest.raises(MCPError, match="1 to 255 visible ASCII characters") as refused:
                await raw(client, method, first(key))
            assert refused.value.error.data == {"reason": "idempotency_key"}
    assert keys == []


async def test_a_key_belongs_to_its_caller() -> None:
    keys: list[str] = []
    server = served(keys)
    for caller in ("ada", "bob", "ada"):
        with signed_in(caller):
            async with connected(server, MODERN, USER) as client:
                await raw(client, "tools/call", first("k-1"))
    assert len(keys) == 2
    assert len(set(keys)) == 2


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_the_key_of_a_service_names_the_call_also_without_a_store(store: Any) -> None:
    """Without a store the effect runs again, under the same key, so that the service recognises it."""
    keys: list[str] = []
    async with connected(served(keys, store=store), MODERN, USER) as client:
        for seat in (1, 1) if store else (1, 1, 2):
            await raw(client, "tools/call", first("k-1", seat=seat))
    assert len(keys) == (1 if store else 3)
    assert len(set(keys)) == (1 if store else 2)


async def test_later_rounds_carry_their_state_and_need_no_key() -> None:
    keys: list[str] = []
    async with connected(served(keys), MODERN, USER) as client:
        asked = await raw(client, "tools/call", first("k-1"))
        answers = {"book/elicit.1": {"action": "accept", "content": {"ok": True}}}
        later = {"requestState": asked["requestState"], "inputResponses": answers}
        done = await raw(client, "tools/call", {**first("not the same key"), **later})
    assert done["structuredContent"] == {"result": "seat 1"}
    assert len(keys) == 1


async def post(url: str, params: dict[str, Any], key: str | None) -> dict[str, Any]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
        **({} if key is None else {"Idempotency-Key": key}),
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    meta = {**CAPABILITIES, **params.pop("_meta", {})}
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
        sent = {**body, "params": {**params, "_meta": meta}}
        response = await client.post(url, json=sent, headers=headers)
    reply: dict[str, Any] = response.json()
    return reply


async def test_the_header_names_the_key_as_meta_does() -> None:
    keys: list[str] = []
    async with http(served(keys), stateless_http=True) as url:
        for header in (
            "k-1",
            '"k-1"',
        ):  # as other services accept the header, and as the draft writes it
            reply = await post(url, {"name": "book", "arguments": {}}, header)
            assert "inputRequests" in reply["result"]
        await post(url, first("k-1"), None)
        await post(url, first("k-1"), "k-1")
        assert len(keys) == 1
        differ = await post(url, first("k-1"), "k-2")
        wrong = await post(url, {"name": "book", "arguments": {}}, "two words")
    assert "different keys" in differ["error"]["message"]
    assert "visible ASCII" in wrong["error"]["message"]
    assert len(keys) == 1


async def test_a_tool_says_whether_its_calls_are_repeated() -> None:
    servers = ((served([]), True), (served([], on_fastmcp), True), (served([], store=None), None))
    for server, takes in servers:
        async with connected(server, MODERN, USER) as client:
            listed = (await client.list_tools()).tools
        assert [(t.meta or {}).get(TAKES) for t in listed if t.name == "book"] == [takes]


@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_client_may_send_a_tools_meta_along_with_each_call(era: str) -> None:
    """OpenAI's agents send a tool's ``_meta`` with each call."""
    async with connected(served([]), era) as client:
        listed = next(t for t in (await client.list_tools()).tools if t.name == "book")
        assert listed.meta
        meta = cast("types.RequestParamsMeta", listed.meta)
        result = await client.call_tool("book", {"ask": False}, meta=meta)
    assert not result.is_error
