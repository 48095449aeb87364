"""Replies as they arrive: the port, and a model without streams behind it.

Owns the one port through which replies are watched, by an agent's turn as by anybody. Entering the
stream sends the request; iterating gives the text as it arrives; leaving, by whichever door, closes
the provider's stream. What has been received is there at any time, so that an interrupted turn
keeps it:

    async with model.stream(request) as stream:
        async for text in stream:
            show(text)
    stream.reply

Which texts arrive together is the provider's affair. Retries and limits are their caller's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

from anyio.lowlevel import checkpoint

from anabranch._asking.sampling import Sampler
from anabranch.messages import Block, SampleReply, SampleRequest, TextBlock, ToolUseBlock

__all__ = [
    "INTERRUPTED",
    "ReplyInPieces",
    "SampleStream",
    "StreamingSampler",
    "as_streaming",
    "interrupted",
]

INTERRUPTED = "interrupted"
"""The stop reason of a reply that was not received to its end."""


class SampleStream(Protocol):
    """One reply on its way."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Give the text, piece by piece, none of them empty.

        Raises:
            ModelError: the provider broke off; ``reply`` has what came before.
        """
        ...

    @property
    def reply(self) -> SampleReply:
        """What has been received.

        When the iteration has ended by itself, what ``sample`` would have returned. Until then,
        and for good if the stream is left early or breaks, its stop reason is ``interrupted`` and
        it has no tool calls: half of one may look like a whole one.
        """
        ...


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler whose replies can be watched as they arrive."""

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Return the stream of a reply to ``request``. Nothing is sent before it is entered.

        Entering raises what ``sample`` raises.
        """
        ...


def as_streaming(sampler: Sampler) -> StreamingSampler:
    """Return ``sampler`` if it streams, else one that gives its replies in one piece."""
    return sampler if isinstance(sampler, StreamingSampler) else _InOnePiece(sampler)


def interrupted(reply: SampleReply, content: Iterable[Block]) -> SampleReply:
    """Return ``reply`` as it is if only ``content`` of it was received."""
    kept = tuple(block for block in content if not isinstance(block, ToolUseBlock))
    return reply.model_copy(
        update={"content": kept or (TextBlock(text=""),), "stop_reason": INTERRUPTED}
    )


class ReplyInPieces:
    """A :class:`SampleStream` of a reply that is known already.

    Args:
        reply: the whole of it.
        pieces: its text; joined, they are all of it.
    """

    def __init__(self, reply: SampleReply, pieces: Iterable[str]) -> None:
        self._whole = reply
        self._pieces = iter([piece for piece in pieces if piece])
        self._given = ""
        self._ended = False

    def __aiter__(self) -> ReplyInPieces:
        """Return itself: there is one reply to be read, once."""
        return self

    async def __anext__(self) -> str:
        """Give the next piece, after whoever else wants to run has run."""
        await checkpoint()
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._ended = True
            raise StopAsyncIteration from None
        self._given += piece
        return piece

    @property
    def reply(self) -> SampleReply:
        """See :class:`SampleStream`. The usage is that of the whole reply, which was made."""
        if self._ended:
            return self._whole
        return interrupted(self._whole, [TextBlock(text=self._given)])


class _InOnePiece:
    """A sampler that does not stream, as one that does."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer as the sampler does."""
        return await self._sampler.sample(request)

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Wait for the whole reply, then give its text at once."""
        reply = await self._sampler.sample(request)
        yield ReplyInPieces(reply, [reply.text])
