"""The models of a chat: those that can be opened by name, and the stand-in when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from anabranch._asking.host import Capabilities
from anabranch._terminal.respondent import NO_MODEL, Respondent
from anabranch.agents import Model
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, known_models, open_model


class ChatModels:
    """The catalogue of all models that the option ``--model`` accepts."""

    def open(self, name: str) -> Model:
        """Return the model of that name, with its provider's cache of prompts enabled.

        Raises:
            ModelError: it cannot be opened.
        """
        return open_model(name, cache=True)

    def names(self) -> Sequence[str]:
        """Return the names that the adapter knows; none without the extra ``models``."""
        return known_models()


class NoModel:
    """The model of a chat for which no model is configured.

    It refuses to lead a conversation; samples of tools are answered by the person.
    """

    def __init__(self, respondent: Respondent) -> None:
        self._respondent = respondent

    @property
    def capabilities(self) -> Capabilities:
        """Samples can be answered where there is a person at a terminal."""
        return self._respondent.capabilities

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Ask the person at the terminal to reply in the model's place."""
        return await self._respondent.sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Refuse.

        Raises:
            ModelError: always.
        """
        del request
        raise ModelError(
            f"No model is configured: {NO_MODEL}, or /switch to one; /auto then answers what was"
            " said. Tools run without: /TOOL name=value."
        )
