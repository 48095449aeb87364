"""The models of a chat: the one that answers, and those that can be switched to.

Owns how a model by name becomes one that an agent can live with, and what stands where no model is
configured: then tools still run, and what they ask of a model, the person at the terminal answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from anabranch.agents import Model
from anabranch.cli.respondent import NO_MODEL, Respondent
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, StreamingSampler, known_models, open_model

__all__ = ["ChatModels", "NoModel"]


class ChatModels:
    """Models by name, as the option ``--model`` takes them."""

    def open(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ModelError: it cannot be opened.
        """
        return _Streamed(open_model(name))

    def names(self) -> Sequence[str]:
        """Return the names that the adapter knows; none without the extra ``models``."""
        return known_models()


class _Streamed:
    """A streaming sampler as an agent's model."""

    def __init__(self, sampler: StreamingSampler) -> None:
        self._sampler = sampler

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer in one piece."""
        return await self._sampler.sample(request)

    async def stream(self, request: SampleRequest) -> AsyncIterator[str | SampleReply]:
        """Yield the text as it comes, and the whole reply in the end."""
        async with self._sampler.stream(request) as stream:
            async for text in stream:
                yield text
        yield stream.reply


class NoModel:
    """Stands where no model is configured."""

    def __init__(self, respondent: Respondent) -> None:
        self._respondent = respondent

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Ask the person at the terminal in the model's place."""
        return await self._respondent.sample("", request)

    async def stream(self, request: SampleRequest) -> AsyncIterator[str | SampleReply]:
        """Refuse: nobody can be a whole conversation's model."""
        raise ModelError(
            f"No model is configured: {NO_MODEL}, or /switch to one; /auto then answers what was"
            " said. Tools run without: /TOOL name=value."
        )
        yield await self.sample(request)  # never reached: it makes this a stream
