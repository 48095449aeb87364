from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from anabranch.cli._story import Story, watched


def request(number: int, method: str, **params: Any) -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)


def response(number: int, **result: Any) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=number, result=result)


@pytest.fixture
def lines() -> list[str]:
    return []


def test_a_modern_call_is_told_in_rounds(lines: list[str]) -> None:
    story = Story(lines.append)
    story.sent(request(1, "tools/list"))
    story.received(response(1, tools=[]))
    story.sent(request(2, "tools/call", name="pick", arguments={"count": 5}))
    asked = {
        "pick/sample.1": {"method": "sampling/createMessage"},
        "pick/card.1": {"method": "elicitation/create"},
    }
    story.received(response(2, resultType="input_required", inputRequests=asked))
    story.sent(request(3, "tools/call", name="pick", inputResponses={"a": {}, "b": {}}))
    story.received(response(3, content=[]))
    assert lines == [
        '→ tools/call pick {"count": 5}',
        "← round 1 ends with 2 questions: pick/sample.1 (the model), pick/card.1 (the person)",
        "→ tools/call again, with 2 answers",
        "← the result",
    ]


def test_a_saga_is_told_in_rounds(lines: list[str]) -> None:
    story = Story(lines.append)
    story.sent(request(0, "tools/resumeSaga"))  # whether there are any
    story.sent(request(1, "tools/callSaga", name="pick", arguments={}))
    steps = [{"type": "sampling", "stepId": "a"}, {"type": "elicitation", "stepId": "b"}]
    story.received(response(1, state="suspended", sagaToken="t", steps=steps))
    story.sent(request(2, "tools/resumeSaga", sagaToken="t", completedSteps=[{}, {}]))
    story.received(response(2, content=[]))
    assert lines == [
        "→ tools/callSaga pick {}",
        "← round 1 ends with 2 questions: a (the model), b (the person)",
        "→ tools/resumeSaga, with 2 completed steps",
        "← the result",
    ]


def test_a_call_of_the_handshake_era_is_told_in_questions(lines: list[str]) -> None:
    story = Story(lines.append)
    story.sent(request(1, "tools/call", name="pick"))
    story.received(request(7, "elicitation/create"))
    story.sent(response(7, action="decline"))
    story.received(request(8, "ping"))
    story.received(response(1, content=[]))
    assert lines == [
        "→ tools/call pick {}",
        "← a question for the person, while the tool waits",
        "→ the answer",
        "← the result",
    ]


async def test_a_watched_transport_passes_everything_on(lines: list[str]) -> None:
    sent, at_server = anyio.create_memory_object_stream[SessionMessage](1)
    from_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](2)

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with sent, at_server, from_server, received:
            yield received, sent

    call = SessionMessage(request(1, "tools/call", name="pick"))
    done, broken = SessionMessage(response(1, content=[])), ValueError("not JSON")
    wire: Transport = transport()
    async with watched(wire, Story(lines.append)) as (read, write):
        await write.send(call)
        assert await at_server.receive() is call
        await from_server.send(broken)
        await from_server.send(done)
        assert await read.receive() is broken
        assert await read.receive() is done
    assert lines == ["→ tools/call pick {}", "← the result"]


async def test_when_the_server_leaves_the_client_sees_the_end(lines: list[str]) -> None:
    sent, at_server = anyio.create_memory_object_stream[SessionMessage](1)
    from_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](1)

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with sent, at_server, received:
            yield received, sent

    async with watched(transport(), Story(lines.append)) as (read, _):
        from_server.close()
        with pytest.raises(anyio.EndOfStream):
            await read.receive()
