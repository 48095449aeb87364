"""How calls are kept in a store, and found again: the policy, replies, and states.

Owns what of a round's end goes into the store, what is handed to the client instead of a large
state, and reading both back. When a round is run is ``durable.py``'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeVar

from anabranch._durable.entry_text import answers_in, merge
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import Ask, Journal, canonical

__all__ = [
    "Asked",
    "Durability",
    "Rendering",
    "Returned",
    "digest",
    "handed_out",
    "latest_journal",
    "latest_number",
    "referred_to",
    "stored_reply",
]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Durability:
    """How a store is used.

    Attributes:
        store: where calls are kept.
        forks: what a different answer to a round that has been answered gets: a refusal
            (``reject``), or a line of its own from there on (``fork``).
        spill: a state of more bytes stays in the store, and the client gets a reference to it.
        lease: seconds for which a worker that has died keeps others from its call.
        abandon_after: seconds without a word from the client after which a call is undone.
        retry_undo_after: seconds until undos that have failed are tried again.
        keep: seconds for which a call that is over is kept, to repeat its replies.
    """

    store: CallStore
    forks: Literal["reject", "fork"] = "reject"
    spill: int = 256 * 1024
    lease: float = 15.0
    abandon_after: float = 900.0
    retry_undo_after: float = 30.0
    keep: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Rendering(Generic[R]):
    """How an edge makes a reply of open questions, and how a store keeps it.

    Attributes:
        kind: the edge's; a reply of another kind is none of its.
        render: from the questions and the state that is handed out with them.
        dump: to JSON; what is in the state need not be there.
        load: from that, and the state again.
        dump_error: an error that the edge tells in its own way, to JSON; ``None`` for others.
        load_error: from that.
    """

    kind: str
    render: Callable[[tuple[Ask, ...], str], R]
    dump: Callable[[R], dict[str, Any]]
    load: Callable[[dict[str, Any], str], R]
    dump_error: Callable[[Exception], dict[str, Any] | None] = lambda _: None
    load_error: Callable[[dict[str, Any]], Exception] = lambda _: RuntimeError("nothing is known")


@dataclass(frozen=True, slots=True)
class Asked(Generic[R]):
    """The round ended with open questions; ``reply`` is what the edge rendered of them."""

    reply: R


@dataclass(frozen=True, slots=True)
class Returned:
    """The call has ended; ``value`` is the tool's."""

    value: Any


def handed_out(policy: Durability, line: str, number: int, state: str) -> str:
    """Return what the client is given of the ``state`` after a round: itself, or a reference."""
    return state if len(state) <= policy.spill else "@" + canonical([line, number, digest(state)])


def stored_reply(
    policy: Durability, rendering: Rendering[R], line: str, record: RoundRecord
) -> R | None:
    """Return the reply of a round that has ended with open questions, ``None`` for another edge's."""
    reply = json.loads(record.reply)
    if reply.get("kind") != rendering.kind:
        return None
    return rendering.load(reply["asked"], handed_out(policy, line, record.number, record.state))


async def referred_to(store: CallStore, reference: str) -> str:
    """Return the state that a reference stands for.

    Raises:
        ValueError: the store does not have it (any more).
    """
    line, number, pinned = json.loads(reference[1:])
    record = await store.round(line, number)
    if record is None or digest(record.state) != pinned:
        raise ValueError(f"call {line!r} has no such state of round {number}")
    return record.state


async def latest_journal(store: CallStore, record: CallRecord) -> Journal:
    """Return a call as far as it is known: its last state, and what the round after it has done.

    Raises:
        ValueError: another release has written it.
    """
    line = record.call_id
    number = await latest_number(store, line)
    before = await store.round(line, number - 1) if number else None
    journal = Journal(line, record.started) if before is None else Journal.loads(before.state)
    stored = await store.entries(line, number)
    journal.answer(answers_in(stored, number))
    merge(journal, stored)
    return journal


async def latest_number(store: CallStore, line: str) -> int:
    """Return the number of the round that ended the call, or of the one that is to come."""
    last = await store.last_round(line)
    return 0 if last is None else last.number + bool(last.state)


def digest(text: str) -> str:
    """Return what pins ``text``: 128 bits of BLAKE2b."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
