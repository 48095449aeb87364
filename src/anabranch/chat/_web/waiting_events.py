"""The events of one thread that wait for the store, each with the lease under which it was reported.

Pieces of one text that wait together are one event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json

from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import NewEvents
from anabranch._text import encodable


class TextPiece(NamedTuple):
    """A ``TextMessageContentEvent``, as most events are: AG-UI's model takes ten times as long."""

    message_id: str
    delta: str
    subagent_run_id: str | None


@dataclass(slots=True)
class WaitingEvents:
    """What is stored at once in one thread: events, and then the pieces of one text.

    Each has the lease of who has reported it: a run and its branches report to one thread. Events
    that release their lease are alone here, since the store refuses them as one if it has passed on.
    """

    events: list[tuple[RenewedLease | None, bytes]] = field(
        default_factory=list[tuple[RenewedLease | None, bytes]]
    )
    text: TextPiece | None = None
    lease: RenewedLease | None = None
    deltas: list[str] = field(default_factory=list[str])
    size: int = 0
    release: RenewedLease | None = None

    def has_room(self, lease: RenewedLease | None, *, release: bool) -> bool:
        """Whether events that were reported under this lease may be stored with these."""
        if not release:
            return self.release is None
        of_text = self.lease if self.text is not None else lease
        return all(each is lease for each in (of_text, *(each for each, _ in self.events)))

    def add_text(self, piece: TextPiece, lease: RenewedLease | None) -> None:
        """Add a piece of a text; it becomes part of the event of the pieces before it."""
        text = self.text
        if text is None or text[0] != piece[0] or text[2] != piece[2] or lease is not self.lease:
            self.end_text()
            self.text, self.lease = piece, lease
        self.deltas.append(piece[1])
        self.size += len(piece[1])

    def add(self, event: bytes, lease: RenewedLease | None) -> None:
        """Add an event."""
        self.end_text()
        self.events.append((lease, event))
        self.size += len(event)

    def end_text(self) -> None:
        """Make an event of the pieces."""
        if self.text is not None:
            event = encoded(self.text._replace(delta="".join(self.deltas)))
            self.events.append((self.lease, event))
            self.text = None
            self.deltas.clear()

    def to_store(self, thread_id: str) -> NewEvents | None:
        """Return what may be stored now: all but events whose lease has run out.

        Another process may have what reported them, and reports it then.
        """
        lost = {lease for lease, _ in self.events if lease is not None and lease.is_over}
        for lease in lost:
            lease.lose()
        events = [event for lease, event in self.events if lease not in lost]
        release = None if self.release is None else self.release.owner
        return NewEvents(thread_id, events, release=release) if events else None


def encoded(event: BaseModel | TextPiece) -> bytes:
    """Return an event as it is sent."""
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
    except ValueError:  # texts of tools and models may have what UTF-8 has not
        return to_json(encodable(shown), by_alias=True, exclude_none=True)
