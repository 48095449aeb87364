"""The protocol of models: ``StreamingSampler``, an adapter for other samplers, and their errors.

Entering a stream sends the request; at any time, ``reply`` has the part received so far.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, runtime_checkable

from anyio.lowlevel import checkpoint

from anabranch._asking import Sampler
from anabranch.errors import AnabranchError
from anabranch.messages import Block, SampleReply, SampleRequest, TextBlock, ToolUseBlock


class ModelError(AnabranchError):
    """A model cannot be opened or asked, or a scripted model has no reply left.

    One sentence of the message names the problem, another the remedy. The message may quote a
    provider, so servers mask this error like a foreign exception if a tool's body lets it escape.

    Attributes:
        refused: whether the model refuses this request; it may take the request without some block.
        at: the numbers of the message and of its block that the provider names.
    """

    def __init__(
        self, message: str, *, refused: bool = False, at: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.at = at


class ProviderError(ModelError):
    """A provider was asked, and sent no complete reply.

    Attributes:
        status: the status of the HTTP response; ``None`` without one.
        retry_after: the seconds after which the provider allows another request, if it names them.
        passing: whether the same request may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        passing: bool = False,
        refused: bool = False,
        at: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(message, refused=refused, at=at)
        self.status = status
        self.retry_after = retry_after
        self.passing = passing


def ended_at_stop(reply: SampleReply, request: SampleRequest) -> SampleReply:
    stops = request.stop_sequences or ()
    for index, block in enumerate(reply.content):
        text = block.text if isinstance(block, TextBlock) else ""
        if found := [place for stop in stops if (place := text.find(stop)) >= 0]:
            ended: list[Block] = [*reply.content[:index], TextBlock(text=text[: min(found)])]
            return reply.model_copy(update={"content": tuple(ended), "stop_reason": "stopSequence"})
    return reply


INTERRUPTED = "interrupted"
"""The stop reason of a reply that was received in part."""


class SampleStream(Protocol):
    """One reply that is being received."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Iterate over the text as it arrives, in pieces that are not empty.

        Raises:
            ModelError: if the provider failed; ``reply`` has the part received before.
        """
        ...

    @property
    def reply(self) -> SampleReply:
        """The part of the reply that has been received.

        After the iteration has ended, this is the result of ``sample``. Before that, or after an
        early exit or a failure, the stop reason is ``interrupted`` and there are no tool calls: a
        partial call can look complete.
        """
        ...


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler whose replies can also be streamed."""

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Return the stream of a reply to ``request``, which is sent when the stream is entered.

        Entering the stream raises the errors of ``sample``.
        """
        ...


def as_streaming(sampler: Sampler) -> StreamingSampler:
    """Return ``sampler`` if it streams, else an adapter that yields each reply in one piece."""
    return sampler if isinstance(sampler, StreamingSampler) else _InOnePiece(sampler)


def interrupted(reply: SampleReply, content: Iterable[Block]) -> SampleReply:
    received = tuple(block for block in content if not isinstance(block, ToolUseBlock))
    return reply.model_copy(
        update={"content": received or (TextBlock(text=""),), "stop_reason": INTERRUPTED}
    )


class ReplyInPieces:
    def __init__(self, reply: SampleReply, pieces: Iterable[str]) -> None:
        self._whole = reply
        self._pieces = iter([piece for piece in pieces if piece])
        self._yielded = ""
        self._ended = False

    def __aiter__(self) -> ReplyInPieces:
        return self

    async def __anext__(self) -> str:
        await checkpoint()
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._ended = True
            raise StopAsyncIteration from None
        self._yielded += piece
        return piece

    @property
    def reply(self) -> SampleReply:
        if self._ended:
            return self._whole
        # The usage is of the whole reply, which the provider has charged.
        return interrupted(self._whole, [TextBlock(text=self._yielded)])


class _InOnePiece:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    async def sample(self, request: SampleRequest) -> SampleReply:
        return await self._sampler.sample(request)

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        reply = await self._sampler.sample(request)
        yield ReplyInPieces(reply, [reply.text])
