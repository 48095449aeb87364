"""Images and sounds that a tool returns reach the model as such, and stay so in store and export."""

import json
from itertools import count
from typing import Any

import mcp_types as types
import pytest
from mcp.server.mcpserver import Image
from pydantic_ai import messages as ai

from anabranch import BranchContext, tool
from anabranch.messages import (
    AudioBlock,
    ImageBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
)
from anabranch.models._translation import to_provider
from anabranch.stores import open_tree_store
from anabranch.testing import calls
from anabranch.tree import thread_from_json, thread_to_json, to_markdown, tree_to_json
from tests.agents.harness import Setting, set_up

PNG = "iVBORw0KGgo="
PICTURE = ImageBlock(data=PNG, mime_type="image/png")
SOUND = AudioBlock(data=PNG, mime_type="audio/wav")
BLOB = types.BlobResourceContents(uri="file:///a.png", mime_type="image/png", blob=PNG)
PLAIN = types.TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="words")

RETURNED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "ours": (PICTURE, (PICTURE,)),
    "MCP's": (types.ImageContent(type="image", data=PNG, mime_type="image/png"), (PICTURE,)),
    "its JSON": ({"type": "image", "data": PNG, "mimeType": "image/png"}, (PICTURE,)),
    "the SDK's helper": (Image(data=b"\x89PNG\r\n\x1a\n", format="png"), (PICTURE,)),
    "a sound": (SOUND, (TextBlock(text="(a sound: audio/wav)"),)),
    "a resource": (types.EmbeddedResource(type="resource", resource=BLOB), (PICTURE,)),
    "several": (["A hill:", PICTURE, 5], (TextBlock(text="A hill:"), PICTURE, TextBlock(text="5"))),
}
TEXTS: dict[str, Any] = {
    "no base64": {"type": "image", "data": "?", "mimeType": "image/png"},
    "no type": {"type": "image", "data": PNG},
    "another type": {"type": "image", "data": PNG, "mimeType": "text/html"},
    "another thing": {"type": "image"},
    "a text resource": types.EmbeddedResource(type="resource", resource=PLAIN),
    "a list": ["a", 5],
}


async def shown(value: object) -> Setting:
    @tool
    async def look(_: BranchContext) -> Any:
        """Look."""
        return value

    def decide(request: SampleRequest) -> SampleReply | str:
        seen = any(isinstance(b, ToolResultBlock) for m in request.messages for b in m.content)
        return "I see." if seen else calls(("use", "look", {}))

    setting = await set_up(decide, tools=[look], store=open_tree_store("memory:"))
    await setting.say("Look")
    await setting.check()
    return setting


def result(setting: Setting) -> ToolResultBlock:
    [block] = setting.model.requests[-1].messages[-1].content
    assert isinstance(block, ToolResultBlock)
    return block


@pytest.mark.parametrize("name", RETURNED)
async def test_the_model_is_sent_what_it_is(name: str) -> None:
    value, blocks = RETURNED[name]
    setting = await shown(value)
    assert result(setting).content == blocks
    await setting.agent.store.close()


@pytest.mark.parametrize("name", TEXTS)
async def test_what_is_no_image_is_text(name: str) -> None:
    setting = await shown(TEXTS[name])
    [block] = result(setting).content
    assert isinstance(block, TextBlock)
    await setting.agent.store.close()


async def test_a_provider_takes_it_and_an_export_holds_it() -> None:
    setting = await shown(PICTURE)
    [_, _, request] = to_provider(setting.model.requests[-1])
    [returned] = request.parts
    assert isinstance(returned, ai.ToolReturnPart)
    content: Any = returned.content
    [image] = content
    assert isinstance(image, ai.BinaryContent)
    assert (image.media_type, image.data) == ("image/png", b"\x89PNG\r\n\x1a\n")
    tree = await setting.tree()
    assert '"mime_type": "image/png"' in str(tree_to_json(tree)).replace("'", '"')
    assert "(image)" in to_markdown(tree)
    numbers = count()
    text = json.dumps(thread_to_json(tree)).encode()
    loaded = thread_from_json(text, lambda kind: f"{kind}-{next(numbers)}", 0.0)
    assert [each.content for each in loaded.results] == [(PICTURE,)]
    await setting.agent.store.close()
