"""``tools/callSaga`` and ``tools/resumeSaga``: their messages, over every connection.

Source: the proposal's six messages, field for field, with its own names and words.
"""

import sys
from collections.abc import AsyncGenerator

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import METHOD_NOT_FOUND

from anabranch.mcp import create_server
from examples.deploy import deploy
from tests.mcp.harness import KEY, MODERN, ROOT, Answers, connected
from tests.sagas.harness import WAYS, call_saga, raw, reached, refusal, resume_saga
from tests.sagas.proposal import FIRST, MESSAGE_2, MESSAGE_4, MESSAGE_6, SECOND


@pytest.fixture(params=WAYS, ids=" ".join)
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[Client]:
    server = create_server("deployer", [deploy], keys=[KEY])
    async with reached(request.param, server, ROOT / "examples" / "deploy.py") as connection:
        yield connection


async def test_the_six_messages_match_the_proposal(client: Client) -> None:
    """The test sends messages 1 to 6 over every transport that carries requests from client to server."""
    one = {"name": "deploy", "arguments": {"version": "value"}}
    two = await raw(client, "tools/callSaga", one)
    first = two.pop("sagaToken")
    three = {"sagaToken": first, "completedSteps": [FIRST]}
    four = await raw(client, "tools/resumeSaga", three)
    second = four.pop("sagaToken")
    five = {"sagaToken": second, "completedSteps": [FIRST, SECOND]}
    six = await raw(client, "tools/resumeSaga", five)
    assert (two, four, six) == (MESSAGE_2, MESSAGE_4, MESSAGE_6)
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert first != second


async def test_the_order_of_completed_steps_does_not_matter() -> None:
    """The server recognises a step by its id."""
    server = create_server("deployer", [deploy], keys=[KEY])
    async with connected(server, MODERN, Answers()) as connection:
        one = await call_saga(connection, "deploy", {"version": "value"})
        two = await resume_saga(connection, one["sagaToken"], FIRST)
        assert await resume_saga(connection, two["sagaToken"], SECOND, FIRST) == MESSAGE_6


async def test_arguments_may_be_left_out() -> None:
    """Arguments are optional; the error for a missing argument is the error of ``tools/call``."""
    server = create_server("deployer", [deploy], keys=[KEY])
    async with connected(server, MODERN, Answers()) as connection:
        result = await raw(connection, "tools/callSaga", {"name": "deploy"})
    assert result["isError"] is True
    assert "version: Field required" in result["content"][0]["text"]


@pytest.mark.long
async def test_a_server_can_be_started_without_saga_methods() -> None:
    command = ["-m", "anabranch", "serve", str(ROOT / "examples" / "deploy.py"), "--no-sagas"]
    process = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)
    async with connected(process, MODERN, Answers()) as connection:
        error = await refusal(connection, "tools/callSaga", {"name": "deploy"})
    assert error.code == METHOD_NOT_FOUND
