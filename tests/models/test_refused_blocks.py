"""A block that a provider refuses is left out, so that the next turn works."""

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
from tests.models.harness import ANTHROPIC, OLLAMA, OPENAI
from tests.models.provider_server import Call, Provider, Refuse, Say


def png(width: int) -> ImageBlock:
    data = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4, "big")
    return ImageBlock(data=base64.b64encode(data).decode(), mime_type="image/png")


SMALL, WIDE = png(10), png(9000)


@tool
async def look(_: BranchContext, *, first: bool = True) -> list[ImageBlock]:
    return [WIDE, SMALL] if first else [SMALL, WIDE]


@pytest.mark.parametrize("model", [ANTHROPIC, OPENAI, OLLAMA])
@pytest.mark.parametrize("first", [True, False])
async def test_a_turn_and_the_next_work_without_a_block_that_the_provider_refuses(
    provider: Provider, model: str, first: bool
) -> None:
    """Each interface numbers blocks differently: OpenAI's system prompts and results are items."""
    store = MemoryTrees()
    agent = Agent(store, open_model(model), tools=[look])
    thread = await agent.begin(system_prompt="Be brief.")
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


@tool
async def read(_: BranchContext) -> str:
    return "the secret word"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ANTHROPIC, "messages.2.content.0.tool_result.content: flagged"),
        (OPENAI, "Invalid 'input[2].output': flagged"),
        (OLLAMA, "Invalid 'messages[2].content': flagged"),
    ],
)
async def test_a_turn_works_without_a_text_that_the_provider_refuses(
    provider: Provider, model: str, name: str
) -> None:
    agent = Agent(MemoryTrees(), open_model(model), tools=[read])
    thread = await agent.begin()
    provider.will(Say("", (Call("c1", "read"),)), Refuse(400, name), Say("I may not say."))
    assert (await agent.say(thread.id, "Read")).text == "I may not say."
    provider.will(Say("No."))
    await agent.say(thread.id, "Really?")
    for sent in map(json.dumps, provider.bodies[2:]):
        assert "the secret word" not in sent
        assert "a text that the model's provider refused" in sent


@pytest.mark.parametrize("named", ["messages.0.content.0: flagged", "flagged"])
async def test_a_refused_message_fails_its_turn_and_is_left_out_of_the_next(
    provider: Provider, named: str
) -> None:
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC))
    thread = await agent.begin()
    provider.will(Refuse(400, named), Refuse(400, named), Say("Hello."))
    with pytest.raises(ProviderError, match="refused the request"):
        await agent.say(thread.id, "the secret word")
    assert len(provider.bodies) == 1
    assert (await agent.say(thread.id, "Hi")).text == "Hello."
    last = json.dumps(provider.bodies[-1])
    assert "the secret word" not in last
    assert "a text that the model's provider refused" in last


async def test_a_refused_request_without_media_fails_immediately(provider: Provider) -> None:
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC), tools=[look])
    thread = await agent.begin()
    provider.will(Refuse(400, "messages.0.content.0: no"))
    with pytest.raises(ProviderError, match="refused the request"):
        await agent.say(thread.id, "Look")
    assert len(provider.bodies) == 1


async def test_a_conversation_continues_with_a_model_that_accepts_no_images() -> None:
    """Replies of another model have followed the images; all images are left out."""
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
