"""The asks of one run that wait for an answer: which they are, in what order, and which task waits.

Sleeps are among them; they are answered by the clock, and never shown to those who answer the
questions. Whether waiting ends a round, and where answers come from, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from anabranch._engine.journal import Ask, AskKind


class _Open(NamedTuple):
    """An ask that waits: for ``future``, in ``task``."""

    ask: Ask
    future: asyncio.Future[None]
    task: asyncio.Task[Any]


class OpenAsks:
    """What is asked and not answered."""

    def __init__(self) -> None:
        self._unseen: deque[Ask] = deque()
        self._open: dict[str, _Open] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}

    def open(self, ask: Ask, task: asyncio.Task[Any]) -> asyncio.Future[None]:
        """Add ``ask``; the returned future is done once it is answered."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[ask.step_id] = _Open(ask, future, task)
        if ask.is_question:
            self._unseen.append(ask)
        return future

    def close(self, step_id: str) -> None:
        """Remove an ask whose answer is no longer awaited; cancel what is still answering it."""
        del self._open[step_id]
        if (answering := self._answering.pop(step_id, None)) is not None:
            answering.cancel()

    def is_open(self, step_id: str) -> bool:
        """Whether the answer to ``step_id`` is still awaited from outside."""
        return self.is_awaited(step_id) and self._open[step_id].ask.is_question

    def is_awaited(self, step_id: str) -> bool:
        """Whether the answer to ``step_id`` is still awaited, from outside or of the clock."""
        opened = self._open.get(step_id)
        return opened is not None and not opened.future.done()

    def wake(self, step_id: str) -> None:
        """Wake the task that waits for the answer, which is recorded now."""
        self._open[step_id].future.set_result(None)

    def next_unseen(self) -> Ask | None:
        """Return the next open ask that was not returned before, ``None`` if there is none."""
        while self._unseen:
            ask = self._unseen.popleft()
            if self.is_open(ask.step_id):
                return ask
        return None

    def answer_with(self, step_id: str, task: asyncio.Task[None]) -> None:
        """Have ``task``, which is answering an open ask, cancelled when the ask is closed."""
        self._answering[step_id] = task

    def answering(self) -> list[asyncio.Task[None]]:
        """Return the tasks that are answering open asks."""
        return list(self._answering.values())

    def ids(self, *kinds: AskKind) -> list[str]:
        """Return the ids of the open asks of these kinds."""
        return [step_id for step_id, opened in self._open.items() if opened.ask.kind in kinds]

    def asks(self) -> tuple[Ask, ...]:
        """Return all that is answered from outside, in the order in which it was asked."""
        asks = (opened.ask for opened in self._open.values())
        return tuple(ask for ask in asks if ask.is_question)

    def futures(self) -> Iterator[asyncio.Future[None]]:
        """Yield what is waited for."""
        return (opened.future for opened in self._open.values())

    def by_task(self) -> dict[asyncio.Task[Any], list[str]]:
        """Return the ids by the task that has asked."""
        asked: dict[asyncio.Task[Any], list[str]] = {}
        for step_id, opened in self._open.items():
            asked.setdefault(opened.task, []).append(step_id)
        return asked
