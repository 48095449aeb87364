"""Nothing that one turn holds makes the next one impossible: what a provider refuses is left out."""

import base64
import json

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import Agent
from anabranch.messages import ImageBlock, SampleReply, SampleRequest
from anabranch.models import ModelError, ProviderError, open_model
from anabranch.testing import calls
from anabranch.tree import media_places
from tests.agents.harness import set_up
from tests.agents.memory import MemoryTrees
from tests.models.provider_server import Call, Provider, Refuse, Say
from tests.models.test_wire import ANTHROPIC, OLLAMA


def png(width: int) -> ImageBlock:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big")
    return ImageBlock(data=base64.b64encode(data).decode(), mime_type="image/png")


SMALL, WIDE = png(10), png(9000)


@tool
async def look(_: BranchContext, *, first: bool = True) -> list[ImageBlock]:
    """Look."""
    return [WIDE, SMALL] if first else [SMALL, WIDE]


@pytest.mark.parametrize(("model", "first"), [(ANTHROPIC, True), (OLLAMA, False)])
async def test_a_turn_and_the_next_work_without_a_block_that_the_provider_refuses(
    provider: Provider, model: str, first: bool
) -> None:
    """Anthropic's error names the block; OpenAI's format names none: the newest is left out."""
    store = MemoryTrees()
    agent = Agent(store, open_model(model), tools=[look])
    thread = await agent.begin()
    refused = Say("never sent")
    provider.will(Say("", (Call("c1", "look", {"first": first}),)), refused, Say("A hill."))
    assert (await agent.say(thread.id, "Look")).text == "A hill."
    provider.will(Say("Green."))
    again = Agent(store, open_model(model), tools=[look])
    assert (await again.say(thread.id, "Which colour?")).text == "Green."
    [_, tried, *taken] = [json.dumps(body) for body in provider.bodies]
    assert (WIDE.data in tried, SMALL.data in tried) == (True, True)
    for sent in taken:
        assert (WIDE.data in sent, SMALL.data in sent) == (False, True)
        assert "an image that the model's provider refused: image/png" in sent


async def test_a_request_that_is_refused_without_media_fails_at_once(provider: Provider) -> None:
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC), tools=[look])
    thread = await agent.begin()
    provider.will(Refuse(400, "messages.0.content.0: no"))
    with pytest.raises(ProviderError, match="refused the request"):
        await agent.say(thread.id, "Look")
    assert len(provider.bodies) == 1


async def test_a_conversation_goes_on_with_a_model_that_takes_no_images() -> None:
    """Replies of another model have followed the images: all of them are left out."""
    takes_images = True

    def decide(request: SampleRequest) -> SampleReply | str:
        seen = media_places(request.messages)
        if seen and not takes_images:
            raise ModelError("This model takes text only. Leave it out.", refused=True)
        return f"{len(seen)} images" if len(request.messages) > 1 else calls(("use", "look", {}))

    setting = await set_up(decide, tools=[look])
    assert (await setting.say("Look")).text == "2 images"
    takes_images = False
    assert (await setting.say("And now?")).text == "0 images"
    requests = len(setting.model.requests)
    assert (await setting.say("Still?")).text == "0 images"
    assert len(setting.model.requests) == requests + 1
    await setting.check()
