"""Finds the call that a server's request or notice belongs to, if several share one connection.

The protocol does not always say. A request that may belong to another owner is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from anabranch._aio import cancel_and_wait
from anabranch._asking import Answerer, AnswerError, Capabilities
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)

logger: logging.Logger = logging.getLogger("anabranch.mcp")

T = TypeVar("T")

MOST_NOTICES: Final = 1_000
"""Maximum notices of one call that wait for a slow reader; further notices are dropped."""
LONGEST_NOTICE: Final = 4_000

_here: ContextVar[CallInFlight | None] = ContextVar("anabranch.mcp.call", default=None)


def forget_call() -> None:
    """Detach the tasks that the current task starts from its call."""
    _here.set(None)


class CallInFlight:
    """A running call of ``owner``; ``answerer`` answers its questions, and receives its notices."""

    def __init__(self, answerer: Answerer, owner: str) -> None:
        self.answerer = answerer
        self.owner = owner
        self._notices: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self._answering: set[asyncio.Future[Any]] = set()
        self._is_full = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Deliver notices in order until the block ends; then cancel the unfinished answers."""
        delivering = asyncio.create_task(self._deliver())
        try:
            yield
            self._notices.put_nowait(None)
            await delivering
        finally:
            await cancel_and_wait([delivering, *self._answering])

    async def answer(self, answering: Awaitable[T]) -> T:
        """Return the result of ``answering``, unless the call ends first."""
        task = asyncio.ensure_future(answering)
        self._answering.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._answering.discard(task)
        if task.cancelled():
            raise AnswerError("the call that sent this request has ended")
        return task.result()

    def log(self, level: LogLevel, message: str) -> None:
        self._notice(lambda: self.answerer.log(level, message[:LONGEST_NOTICE]))

    def notify(self, message: str, progress: float, total: float | None) -> None:
        self._notice(lambda: self.answerer.notify(message[:LONGEST_NOTICE], progress, total))

    def _notice(self, deliver: Callable[[], Awaitable[None]]) -> None:
        if self._notices.qsize() < MOST_NOTICES:
            self._notices.put_nowait(deliver)
        elif not self._is_full:
            self._is_full = True
            logger.warning("a server sends more notices than can be delivered; some are dropped")

    async def _deliver(self) -> None:
        while (deliver := await self._notices.get()) is not None:
            await deliver()


class Addressed:
    """The answerer of a connection: passes each request or notice of the server to its call."""

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._calls: list[CallInFlight] = []

    @asynccontextmanager
    async def calling(self, call: CallInFlight) -> AsyncGenerator[None]:
        """Let the server ask questions of ``call`` until the block ends."""
        self._calls.append(call)
        token = _here.set(call)
        try:
            async with call.running():
                yield
        finally:
            _here.reset(token)
            self._calls.remove(call)

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        call = self._asking()
        return await call.answer(call.answerer.sample(request, step_id=step_id))

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        call = self._asking()
        return await call.answer(call.answerer.elicit(request, step_id=step_id))

    async def log(self, level: LogLevel, message: str, /) -> None:
        if (call := self._call()) is not None:
            call.log(level, message)

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Do nothing: each request has a separate callback for its progress."""

    def _call(self) -> CallInFlight | None:
        known = _here.get()
        if known in self._calls:
            return known
        owners = {call.owner for call in self._calls}
        return self._calls[0] if len(owners) == 1 else None

    def _asking(self) -> CallInFlight:
        call = self._call()
        if call is None:
            raise AnswerError("several conversations use the server, and the request names none")
        return call
