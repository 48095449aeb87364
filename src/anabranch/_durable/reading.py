"""Reads stored calls: states, open questions, and waiting answers; runs no author code."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from anabranch._durable.entries import entered
from anabranch._durable.job import Durability
from anabranch._durable.recorder import Replies, repeat_reply
from anabranch._durable.states import is_reference, load_reference, refer
from anabranch._durable.store import CallRecord, RoundRecord
from anabranch._engine import Answer, Journal
from anabranch.errors import InvalidTokenError, StoreError, UnreachableError

MAX_STATE = 8 * 2**20
"""Maximum bytes of all answers of a call, since a small token may inflate to a large state."""

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


class StoredCalls:
    """The stored calls of one server; methods raise ``ToolError`` if the store does not answer."""

    def __init__(self, policy: Durability | None, max_state: int = MAX_STATE) -> None:
        self._policy = policy
        self._max_state = max_state

    async def load(self, state: str) -> Journal:
        """Return the journal in ``state``, which an earlier round gave to the client."""
        try:
            if is_reference(state) and self._policy is not None:
                with store_errors_mapped():
                    state = await load_reference(self._policy.store, state)
            # The factor leaves room for the names and forms in a journal.
            return Journal.loads(state, 2 * self._max_state)
        except ValueError as problem:
            logger.warning("a state was refused: %s", problem)
            raise InvalidTokenError from problem

    async def shortened(self, state: str) -> str:
        """Return a reference to ``state`` if the server has a store, otherwise ``state`` itself."""
        if self._policy is None or is_reference(state):
            return state
        journal = await self.load(state)
        return refer(journal.line, journal.rounds - 1, state)

    async def find(self, line: str, principal: str) -> CallRecord | None:
        """Return the call ``line`` of ``principal``, if it is stored and part of no conversation."""
        if self._policy is None:
            return None
        with store_errors_mapped():
            record = await self._policy.store.find(line)
        is_theirs = record is not None and (record.principal, record.thread) == (principal, "")
        return record if is_theirs else None

    async def waiting(self, line: str, replies: Replies[R]) -> tuple[R, RoundRecord] | None:
        """Return the last reply of a stored call that waits at this edge for answers, and its round."""
        if self._policy is None:
            return None
        with store_errors_mapped():
            last = await self._policy.store.last_round(line)
        if last is None or not last.state:
            return None
        reply = self.repeated(replies, line, last)
        return None if reply is None else (reply, last)

    def repeated(self, replies: Replies[R], line: str, record: RoundRecord) -> R | None:
        policy = self._policy
        return None if policy is None else repeat_reply(policy, replies, line, record)

    async def entered(self, journal: Journal) -> dict[str, Answer]:
        if self._policy is None:
            return {}
        with store_errors_mapped():
            return await entered(self._policy.store, journal)


@contextmanager
def store_errors_mapped() -> Generator[None]:
    """Report a failure of the store in the block to the client, without details."""
    try:
        yield
    except StoreError as error:
        logger.error("the store failed: %s", error)  # noqa: TRY400 - the sentence is all
        if "unrecorded" in error.facts:
            raise UnreachableError(str(error)) from error
        raise UnreachableError(
            "This server cannot reach its records just now. Nothing is lost; send the same request"
            " again."
        ) from error
