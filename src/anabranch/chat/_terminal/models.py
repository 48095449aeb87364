"""The models of a chat: the one that answers, and those that can be switched to.

Owns how a chat finds a model by name, and what stands where none is configured: then tools still
run, and what they ask of a model, the person at the terminal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from anabranch._terminal.respondent import NO_MODEL, Respondent
from anabranch.agents import Model
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, known_models, open_model

__all__ = ["ChatModels", "NoModel"]


class ChatModels:
    """Models by name, as the option ``--model`` takes them."""

    def open(self, name: str) -> Model:
        """Return the model of that name; its provider is to keep what is said in its cache.

        Raises:
            ModelError: it cannot be opened.
        """
        return open_model(name, cache=True)

    def names(self) -> Sequence[str]:
        """Return the names that the adapter knows; none without the extra ``models``."""
        return known_models()


class NoModel:
    """Stands where no model is configured."""

    def __init__(self, respondent: Respondent) -> None:
        self._respondent = respondent

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Ask the person at the terminal in the model's place."""
        return await self._respondent.sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Refuse: nobody can be a whole conversation's model."""
        del request
        raise ModelError(
            f"No model is configured: {NO_MODEL}, or /switch to one; /auto then answers what was"
            " said. Tools run without: /TOOL name=value."
        )
