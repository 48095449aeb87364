"""The asks of one run that wait for an answer.

Owns which they are, who waits for each, and in what order they were asked. Whether waiting ends a
round, and where answers come from, is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from anabranch._engine.journal import Answer, Ask, AskKind, Journal

__all__ = ["OpenAsks"]


class _Open(NamedTuple):
    """An ask that waits: for ``future``, in ``task``."""

    ask: Ask
    future: asyncio.Future[None]
    task: asyncio.Task[Any]


class OpenAsks:
    """What is asked and not answered; the journal's ``pending`` follows it.

    Attributes:
        unseen: asks that no driver has taken yet.
    """

    def __init__(self, journal: Journal) -> None:
        self.unseen: deque[Ask] = deque()
        self._journal = journal
        self._open: dict[str, _Open] = {}

    def open(self, ask: Ask, task: asyncio.Task[Any]) -> asyncio.Future[None]:
        """Add ``ask``; the returned future is done once it is answered."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[ask.step_id] = _Open(ask, future, task)
        self._journal.pending[ask.step_id] = (ask.kind, ask.fingerprint)
        self.unseen.append(ask)
        return future

    def close(self, step_id: str, *, withdrawn: bool) -> None:
        """Nobody waits any more; ``withdrawn`` unless the question stays open for a next round."""
        del self._open[step_id]
        if withdrawn:
            self._journal.pending.pop(step_id, None)

    def answer(self, step_id: str, answer: Answer) -> bool:
        """Write ``answer`` into the journal and wake who waits; false if nobody does."""
        if not self.is_open(step_id):
            return False
        self._journal.answer({step_id: answer})
        self._open[step_id].future.set_result(None)
        return True

    def is_open(self, step_id: str) -> bool:
        """Whether somebody still waits for the answer to ``step_id``."""
        opened = self._open.get(step_id)
        return opened is not None and not opened.future.done()

    def ids(self, *kinds: AskKind) -> list[str]:
        """Return the ids of the open asks of these kinds."""
        return [step_id for step_id, opened in self._open.items() if opened.ask.kind in kinds]

    def asks(self) -> tuple[Ask, ...]:
        """Return all, in the order in which they were asked."""
        return tuple(opened.ask for opened in self._open.values())

    def futures(self) -> Iterator[asyncio.Future[None]]:
        """Yield what is waited for."""
        return (opened.future for opened in self._open.values())

    def by_task(self) -> dict[asyncio.Task[Any], list[str]]:
        """Return the ids by the task that has asked."""
        asked: dict[asyncio.Task[Any], list[str]] = {}
        for step_id, opened in self._open.items():
            asked.setdefault(opened.task, []).append(step_id)
        return asked
