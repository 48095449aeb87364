"""``tools/callSaga`` and ``tools/resumeSaga``: their shapes, over every way they can be reached."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from anabranch.mcp import create_server
from examples.deploy import complex_tool
from tests.mcp.harness import ERAS, KEY
from tests.sagas.harness import call_saga, resume_saga

TARGET = {"action": "accept", "content": {"target": "production"}}
GREEN = {
    "role": "assistant",
    "content": {"type": "text", "text": "Yes, all systems are green."},
    "model": "client-side-llm-v2",
}
FIRST = {"stepId": "step-elicitation-A", "result": TARGET}
SECOND = {"stepId": "step-sampling-B", "result": GREEN}


def server() -> MCPServer[Any]:
    return create_server("deployer", [complex_tool], keys=[KEY])


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[Client]:
    async with Client(server(), mode=request.param) as connected:
        yield connected


async def test_the_six_messages_are_those_of_the_proposal(client: Client) -> None:
    suspended = await call_saga(client, "complex_tool", {"initial_arg": "value"})
    assert isinstance(suspended.pop("sagaToken"), str)
    assert suspended == {
        "state": "suspended",
        "steps": [
            {
                "type": "elicitation",
                "stepId": "step-elicitation-A",
                "params": {
                    "message": "Please provide the deployment target:",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"target": {"type": "string"}},
                        "required": ["target"],
                    },
                },
            }
        ],
    }


async def test_a_saga_runs_to_its_result(client: Client) -> None:
    first = await call_saga(client, "complex_tool", {"initial_arg": "value"})
    second = await resume_saga(client, first["sagaToken"], FIRST)
    assert second["steps"] == [
        {
            "type": "sampling",
            "stepId": "step-sampling-B",
            "params": {
                "messages": [
                    {
                        "role": "user",
                        "content": {
                            "type": "text",
                            "text": "Is deploying to 'production' safe right now?",
                        },
                    }
                ],
                "maxTokens": 100,
            },
        }
    ]
    done = await resume_saga(client, second["sagaToken"], FIRST, SECOND)
    text = "Deployment to production initiated successfully based on confirmation."
    assert done == {"content": [{"type": "text", "text": text}]}
