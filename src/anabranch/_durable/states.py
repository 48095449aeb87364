"""The state of a call between rounds, as text or as a reference to the store; and stored calls.

Readers of stored calls get states, open questions and waiting answers; no author code runs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import Final, TypeVar

from anabranch._durable.entries import dump_answers, entered, load_answers, merge
from anabranch._durable.job import Durability
from anabranch._durable.recorder import Replies
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._durable.transitions import UNDONE, CallState
from anabranch._engine import Answer, Journal, canonical, exceeds, size
from anabranch.errors import InvalidTokenError, StoreError, UnreachableError

MAX_STATE = 8 * 2**20
"""Maximum bytes of all answers of a call, since a small token may inflate to a large state."""

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


def name_line(journal: Journal, answers: Mapping[str, Answer]) -> None:
    """Give ``journal`` the name of the line that begins with ``answers``."""
    journal.begin_line(f"~{journal.rounds}.{digest(canonical(dump_answers(answers)))[:12]}")


async def begin_line(store: CallStore, record: CallRecord, journal: Journal) -> None:
    """Store a new line of a call with the data of ``record``; it continues from ``journal``."""
    waiting = replace(record, state=CallState.WAITING, failure=None, is_stopped=False)
    await store.begin(waiting, after=RoundRecord(journal.rounds - 1, "{}", journal.dumps()))


def is_compensated(known: CallRecord, journal: Journal) -> bool:
    """Return whether the effects of ``journal`` are undone in the call ``known``, or will be."""
    has_failed = known.state in {CallState.FAILED, CallState.UNDOING}
    return known.state in UNDONE or (has_failed and bool(journal.compensations))


_REFERENCE = "@"

ANSWERS: Final = 256 * 1024
"""Bytes of a request that are reserved for the answers and the protocol."""


class StateSizeError(Exception):
    """The state of a call is too large for a client to send back."""


def sealed_size(text: str) -> int:
    """Return the approximate length of ``text`` after encoding as JSON twice, encryption and Base64."""
    return size(text) * 4 // 3


def check_carried(journal: Journal, state: str, others: int, limit: int) -> None:
    """Raise ``StateSizeError`` if the next request cannot carry ``state`` and ``others``, in bytes."""
    sealed = sealed_size(state)
    if sealed + others + ANSWERS <= limit:
        return
    sizes = {step_id: size(entry.value) for step_id, entry in journal.entries.items()}
    largest = max(sizes, key=sizes.__getitem__, default="")
    holder = f", of which the value of {largest!r} takes {sizes[largest]:,}" if largest else ""
    raise StateSizeError(
        f"The state of this call takes {sealed:,} bytes{holder}. A request may have at"
        f" most {limit:,} bytes, with arguments and answers, so no client could send an answer. The"
        " server undoes the effects of the call. Give the server a store=, or let the step return a"
        " reference in place of its value."
    )


def handed_out(policy: Durability, line: str, number: int, state: str) -> str:
    """Return the state for the client after a round: the ``state`` itself, or a reference."""
    return refer(line, number, state) if exceeds(state, policy.spill) else state


def refer(line: str, number: int, state: str) -> str:
    return _REFERENCE + canonical([line, number, digest(state)])


def is_reference(state: str) -> bool:
    return state.startswith(_REFERENCE)


async def load_reference(store: CallStore, reference: str) -> str:
    """Return the state to which a reference points; raise ``ValueError`` without one."""
    line, number, expected = json.loads(reference.removeprefix(_REFERENCE))
    record = await store.round(line, number)
    if record is None or digest(record.state) != expected:
        raise ValueError(f"the store has another state of round {number} of call {line!r}, or none")
    return record.state


async def latest_journal(store: CallStore, record: CallRecord) -> Journal:
    """Return the latest journal of a call: its last state, and the entries of the round after it."""
    line = record.call_id
    number = await latest_number(store, line)
    before = await store.round(line, number - 1) if number else None
    journal = Journal(line, record.started) if before is None else Journal.loads(before.state)
    inbox = await store.answers(line)
    taken = {step: each.text for step, each in inbox.items() if each.round == number}
    journal.answer(load_answers(taken))
    merge(journal, await store.entries(line, number), await store.undone_steps(line))
    return journal


async def latest_number(store: CallStore, line: str) -> int:
    """Return the number of the round that ended the call, or of the next round."""
    last = await store.last_round(line)
    return 0 if last is None else last.number + bool(last.state)


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
        """Return the stored reply of a round with questions; ``None`` for a reply of another edge."""
        stored = json.loads(record.reply)
        if self._policy is None or stored.get("kind") != replies.kind:
            return None
        state = handed_out(self._policy, line, record.number, record.state)
        return replies.load(stored["asked"], state)

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
            "This server cannot reach its store just now. Nothing is lost; send the same request"
            " again."
        ) from error
