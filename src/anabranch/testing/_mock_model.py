"""``MockModel``, a streaming model whose replies a function computes from the request.

The order of concurrent branches is unknown, but the request shows which branch asks.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeAlias

from anabranch.messages import Block, SampleReply, SampleRequest, TextBlock, ToolUseBlock, Usage
from anabranch.models import SampleStream, interrupted
from anabranch.tool import wrong_kind

ModelAnswer: TypeAlias = str | SampleReply | Exception | AsyncIterator[str | SampleReply]
"""The answer of a mock model: a text, a whole reply, an error, or a stream."""
ModelFunction: TypeAlias = Callable[[SampleRequest], ModelAnswer | Awaitable[ModelAnswer]]
"""Computes the answer of a mock model, sync or async."""


class MockModel:
    """A streaming model for tests.

    Args:
        answer: returns the reply to a request: a text, a ``SampleReply`` (see :func:`calls`), an
            exception to raise, or an async iterator to stream; sync or async.

    Attributes:
        requests: the requests, in the order of their arrival.
    """

    def __init__(self, answer: ModelFunction) -> None:
        if not callable(answer):
            wanted = "a function of the request; ScriptedModel takes replies in order"
            raise wrong_kind("MockModel()", wanted, answer)
        self._answer = answer
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Return the whole reply."""
        async with self.stream(request) as stream:
            async for _ in stream:
                pass
        return stream.reply

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Stream the reply word by word."""
        self.requests.append(request)
        answer = self._answer(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        parts = answer if isinstance(answer, AsyncIterator) else _in_words(answer)
        try:
            yield _Arriving(parts)
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()


class _Arriving:
    """A :class:`SampleStream` of texts and, at the end, the whole reply; interrupted without it."""

    def __init__(self, parts: AsyncIterator[str | SampleReply]) -> None:
        self._parts = parts
        self._received = ""
        self._whole: SampleReply | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async for part in self._parts:
            if isinstance(part, str):
                self._received += part
                return part
            self._whole = part
        raise StopAsyncIteration

    @property
    def reply(self) -> SampleReply:
        if self._whole is not None:
            return self._whole
        return interrupted(calls(), [TextBlock(text=self._received)])


async def _in_words(answer: str | SampleReply) -> AsyncGenerator[str | SampleReply]:
    reply = calls(text=answer) if isinstance(answer, str) else answer
    for word in re.findall(r"\s*\S+\s*$|\s*\S+", reply.text):
        yield word
    yield reply


def calls(
    *uses: ToolUseBlock | tuple[str, str, Mapping[str, Any]],
    text: str = "",
    usage: Usage | None = None,
) -> SampleReply:
    """Return a reply with a text and tool calls, each given as ``(id, name, input)``."""
    content: list[Block] = [TextBlock(text=text)] if text else []
    content += _blocks(uses)
    stop = "toolUse" if uses else "endTurn"
    return SampleReply(content=tuple(content), model="mock", stop_reason=stop, usage=usage)


def _blocks(
    uses: Iterable[ToolUseBlock | tuple[str, str, Mapping[str, Any]]],
) -> Iterable[ToolUseBlock]:
    for use in uses:
        if isinstance(use, ToolUseBlock):
            yield use
        else:
            name, tool, given = use
            yield ToolUseBlock(id=name, name=tool, input=dict(given))
