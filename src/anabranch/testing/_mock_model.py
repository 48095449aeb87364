"""A model that answers by a function of what it is asked, and streams.

Owns no script: see ``models/scripted.py`` for replies in a given order. With many branches at work,
what a model is asked is the only thing that tells which of them is asking.
"""

from __future__ import annotations

import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, TypeAlias

from anabranch.messages import Block, SampleReply, SampleRequest, TextBlock, ToolUseBlock, Usage
from anabranch.models import SampleStream
from anabranch.models._streaming import interrupted

__all__ = ["MockModel", "calls"]

Said: TypeAlias = str | SampleReply | Exception | AsyncIterator[str | SampleReply]
Decide: TypeAlias = Callable[[SampleRequest], Said | Awaitable[Said]]


class MockModel:
    """A streaming model for tests.

    Args:
        decide: returns the reply to a request: a text, a ``SampleReply`` (see :func:`calls`), an
            exception to raise, or an async iterator of what is streamed; sync or async.

    Attributes:
        requests: all that it was asked, in the order in which it was.
    """

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer at once."""
        async with self.stream(request) as stream:
            async for _ in stream:
                pass
        return stream.reply

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Answer word by word."""
        self.requests.append(request)
        said = self._decide(request)
        if isawaitable(said):
            said = await said
        if isinstance(said, Exception):
            raise said
        parts = said if isinstance(said, AsyncIterator) else _in_words(said)
        try:
            yield _Arriving(parts)
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()


class _Arriving:
    """A :class:`SampleStream` of texts, and the whole reply in the end.

    Without a whole reply in the end it stays interrupted.
    """

    def __init__(self, parts: AsyncIterator[str | SampleReply]) -> None:
        self._parts = parts
        self._heard = ""
        self._whole: SampleReply | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async for part in self._parts:
            if isinstance(part, str):
                self._heard += part
                return part
            self._whole = part
        raise StopAsyncIteration

    @property
    def reply(self) -> SampleReply:
        if self._whole is not None:
            return self._whole
        return interrupted(calls(), [TextBlock(text=self._heard)])


async def _in_words(said: str | SampleReply) -> AsyncGenerator[str | SampleReply]:
    reply = calls(text=said) if isinstance(said, str) else said
    for word in re.findall(r"\s*\S+\s*$|\s*\S+", reply.text):
        yield word
    yield reply


def calls(
    *uses: ToolUseBlock | tuple[str, str, Mapping[str, Any]],
    text: str = "",
    usage: Usage | None = None,
) -> SampleReply:
    """Return a reply that says ``text`` and calls tools, each given as (id, name, input)."""
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
