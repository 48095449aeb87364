"""The models of chats: the catalogue, the scripted model of the demo, and a missing model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from anabranch import Capabilities
from anabranch._terminal import NO_MODEL, Respondent
from anabranch.agents import Model
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, ScriptedModel, known_models, open_model

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
        return await _scripted(request).sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        return _scripted(request).stream(request)


def _scripted(request: SampleRequest) -> ScriptedModel:
    last = request.messages[-1].content if request.messages else ()
    returned = any(block.type == "tool_result" for block in last)
    return ScriptedModel([_AGAIN if returned else _PLAY], "demo")


class WithoutModel:
    """Replaces a missing model: refuses turns, and asks the user at the terminal for samples.

    Args:
        respondent: asks the user at the terminal.
    """

    def __init__(self, respondent: Respondent | None = None) -> None:
        self._respondent = respondent

    @property
    def capabilities(self) -> Capabilities:
        if self._respondent is None:
            return Capabilities(sampling=False, sampling_tools=False)
        return self._respondent.capabilities

    async def sample(self, request: SampleRequest) -> SampleReply:
        if self._respondent is None:
            raise self._refusal
        return await self._respondent.sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        del request
        raise self._refusal

    @property
    def _refusal(self) -> ModelError:
        how = f"No model is configured: {NO_MODEL}"
        if self._respondent is not None:
            how += ", or /switch to one; /auto then answers your message"
        return ModelError(f"{how}. Tools run without a model: /TOOL name=value.")


class ChatModels:
    """The catalogue of all models for the option ``--model``."""

    def open(self, name: str) -> Model:
        """Return the model with that name, with its provider's prompt cache enabled.

        Raises:
            ModelError: if the model cannot be opened.
        """
        return open_model(name, cache=True)

    def names(self) -> Sequence[str]:
        """Return the names of known models; no names without the extra ``models``."""
        return known_models()
