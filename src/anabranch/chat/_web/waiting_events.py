"""The events of one thread that are not stored yet, with the lease of their run.

Pieces of one text that wait together become one event.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json

from anabranch._durable import NewEvents, RenewedLease
from anabranch._text import encodable


class TextPiece(NamedTuple):
    """A piece of a reply's text, in a form that is faster than an event of AG-UI."""

    message_id: str
    delta: str
    subagent_run_id: str | None


@dataclass(slots=True)
class WaitingEvents:
    """Events of one thread that the store adds together.

    All events were reported under one ``lease``, or under none. The store adds the events if the
    lease's owner still holds the lease. With ``ends``, the turn ends with the events, and a worker
    looks at the thread at ``look_at``. ``is_stored`` is set when the store has the events, or none
    of them after too many failures.
    """

    lease: RenewedLease | None = None
    ends: bool = False
    look_at: float | None = None
    events: list[bytes] = field(default_factory=list[bytes])
    text: TextPiece | None = None
    deltas: list[str] = field(default_factory=list[str])
    size: int = 0
    is_stored: asyncio.Event = field(default_factory=asyncio.Event)

    def has_room(self, lease: RenewedLease | None) -> bool:
        """Return whether the store may add events under ``lease`` together with these events."""
        return lease is self.lease and not self.ends

    def add_text(self, piece: TextPiece) -> None:
        """Add a piece of a text; pieces of the same text become one event."""
        text = self.text
        if text is None or text[0] != piece[0] or text[2] != piece[2]:
            self.end_text()
            self.text = piece
        self.deltas.append(piece[1])
        self.size += len(piece[1])

    def add(self, event: bytes) -> None:
        """Add an event after all pieces of text."""
        self.end_text()
        self.events.append(event)
        self.size += len(event)

    def end_text(self) -> None:
        """Join the pieces of text into one event."""
        if self.text is not None:
            self.events.append(encoded(self.text._replace(delta="".join(self.deltas))))
            self.text = None
            self.deltas.clear()

    def to_store(self, thread_id: str, key: str) -> NewEvents:
        """Return the events in the form that the store adds, under the key ``key``."""
        owner = None if self.lease is None else self.lease.owner
        return NewEvents(thread_id, self.events, key, owner, self.ends, look_at=self.look_at)

    def drop(self) -> None:
        """Give up the lease after a store failure, so that another worker reports the events."""
        if self.lease is not None:
            self.lease.lose()


def encoded(event: BaseModel | TextPiece) -> bytes:
    """Return an event as the JSON that clients receive."""
    shown: object = event
    if isinstance(event, TextPiece):
        branch = event.subagent_run_id
        shown = {
            "type": "TEXT_MESSAGE_CONTENT",
            "messageId": event.message_id,
            "delta": event.delta,
            **({"subagentRunId": branch} if branch else {}),
        }
    try:
        return to_json(shown, by_alias=True, exclude_none=True)
    except ValueError:  # texts of tools and models may have lone surrogates
        return to_json(encodable(shown), by_alias=True, exclude_none=True)
