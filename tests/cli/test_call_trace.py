from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse

from anabranch.cli._call_trace import CallTrace, traced


def request(number: int, method: str, **params: Any) -> JSONRPCRequest:
    return JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)


def response(number: int, **result: Any) -> JSONRPCResponse:
    return JSONRPCResponse(jsonrpc="2.0", id=number, result=result)


@pytest.fixture
def lines() -> list[str]:
    return []


def test_a_modern_call_is_described_round_by_round(lines: list[str]) -> None:
    trace = CallTrace(lines.append)
    trace.sent(request(1, "tools/list"))
    trace.received(response(1, tools=[]))
    trace.sent(request(2, "tools/call", name="pick", arguments={"count": 5}))
    asked = {
        "pick/sample.1": {"method": "sampling/createMessage"},
        "pick/card.1": {"method": "elicitation/create"},
    }
    trace.received(response(2, resultType="input_required", inputRequests=asked))
    trace.sent(request(3, "tools/call", name="pick", inputResponses={"a": {}, "b": {}}))
    trace.received(response(3, content=[]))
    assert lines == [
        '→ tools/call pick {"count": 5}',
        "← round 1 ends with 2 questions: pick/sample.1 (the model), pick/card.1 (the user)",
        "→ tools/call again, with 2 answers",
        "← the result",
    ]


def test_a_saga_is_described_round_by_round(lines: list[str]) -> None:
    trace = CallTrace(lines.append)
    trace.sent(request(0, "tools/resumeSaga"))  # a look whether the server has saga methods
    trace.sent(request(1, "tools/callSaga", name="pick", arguments={}))
    steps = [{"type": "sampling", "stepId": "a"}, {"type": "elicitation", "stepId": "b"}]
    trace.received(response(1, state="suspended", sagaToken="t", steps=steps))
    trace.sent(request(2, "tools/resumeSaga", sagaToken="t", completedSteps=[{}, {}]))
    trace.received(response(2, content=[]))
    assert lines == [
        "→ tools/callSaga pick {}",
        "← round 1 ends with 2 questions: a (the model), b (the user)",
        "→ tools/resumeSaga, with 2 completed steps",
        "← the result",
    ]


def test_a_call_of_the_handshake_era_is_described_by_its_questions(lines: list[str]) -> None:
    trace = CallTrace(lines.append)
    trace.sent(request(1, "tools/call", name="pick"))
    trace.received(request(7, "elicitation/create"))
    trace.sent(response(7, action="decline"))
    trace.received(request(8, "ping"))
    trace.received(response(1, content=[]))
    assert lines == [
        "→ tools/call pick {}",
        "← a question for the user, while the tool waits",
        "→ the answer",
        "← the result",
    ]


async def test_a_traced_transport_passes_all_on_and_ends_with_the_server(lines: list[str]) -> None:
    sent, at_server = anyio.create_memory_object_stream[SessionMessage](1)
    from_server, received = anyio.create_memory_object_stream[SessionMessage | Exception](2)

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with sent, at_server, received:
            yield received, sent

    call = SessionMessage(request(1, "tools/call", name="pick"))
    done, broken = SessionMessage(response(1, content=[])), ValueError("not JSON")
    async with traced(transport(), CallTrace(lines.append)) as (read, write):
        await write.send(call)
        assert await at_server.receive() is call
        await from_server.send(broken)
        await from_server.send(done)
        assert await read.receive() is broken
        assert await read.receive() is done
        from_server.close()
        with pytest.raises(anyio.EndOfStream):
            await read.receive()
    assert lines == ["→ tools/call pick {}", "← the result"]
