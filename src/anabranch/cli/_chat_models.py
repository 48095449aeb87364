"""The models of ``anabranch web`` without a configured one: one plays the demo, one refuses."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from anabranch import Capabilities
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, ScriptedModel

_PLAY = {
    "text": "There is no model behind this page, so let us play a card game.",
    "tool_calls": [{"name": "pick_card", "arguments": {"count": 5}}],
}
_AGAIN = {
    "text": "That was one tool, which drew cards, asked you, and returned **one value** to me."
    " Say anything to play again, or call it yourself: `/pick_card count=3`.\n\n"
    "With a model and tools of your own: `anabranch web tools.py --model anthropic:…`"
}


class DemoModel:
    """Answers each message by calling ``pick_card``, and its result with a hint at the next step."""

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Return the reply to ``request``."""
        return await _scripted(request).sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Stream the reply to ``request``."""
        return _scripted(request).stream(request)


def _scripted(request: SampleRequest) -> ScriptedModel:
    last = request.messages[-1].content if request.messages else ()
    returned = any(block.type == "tool_result" for block in last)
    return ScriptedModel([_AGAIN if returned else _PLAY], "demo")


class WithoutModel:
    """Refuses every request, and says how to configure a model."""

    capabilities: Capabilities = Capabilities(sampling=False, sampling_tools=False)

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Refuse."""
        del request
        _refuse()

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Refuse."""
        del request
        _refuse()


def _refuse() -> NoReturn:
    raise ModelError(
        "No model is configured. Start with --model NAME (or ANABRANCH_MODEL); tools run without:"
        " /TOOL name=value."
    )
