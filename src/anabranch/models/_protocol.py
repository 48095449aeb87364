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
    """A model could not be opened or asked, or a scripted model has no reply left.

    The message names the problem and the remedy. The message may quote a provider; if a tool does
    not catch the error, a server hides the message from the caller.

    Attributes:
        refused: whether the model refuses this request, for example because of one block.
        at: the index of the refused message and of its block, if the provider names them.
    """

    def __init__(
        self, message: str, *, refused: bool = False, at: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.at = at


class ProviderError(ModelError):
    """A provider did not answer a request, or sent an incomplete reply.

    Attributes:
        status: the status of the HTTP response; ``None`` without a response.
        retry_after: seconds until the provider allows another request, if the provider sent a time.
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
    """A model's reply, read while the model writes it."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Iterate over the reply's text as it arrives, in pieces that are not empty.

        Raises:
            ModelError: if the provider failed; ``reply`` then has the part received so far.
        """
        ...

    @property
    def reply(self) -> SampleReply:
        """The reply, or the part of it that has arrived.

        After the iteration, this is the whole reply, as ``sample`` returns it. During the
        iteration, and after an early exit or a failure, the stop reason is ``interrupted`` and the
        reply has no tool calls, since a partial call can look complete.
        """
        ...


@runtime_checkable
class StreamingSampler(Sampler, Protocol):
    """A sampler that can also stream its replies."""

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Return the stream of a reply to ``request``; ``async with`` sends the request.

        ``async with`` raises the same errors as ``sample``.
        """
        ...


def as_streaming(sampler: Sampler) -> StreamingSampler:
    """Return ``sampler`` itself if it can stream, else an adapter that streams one piece."""
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
