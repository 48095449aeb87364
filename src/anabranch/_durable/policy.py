"""The times, sizes and rules by which one server stores its calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch._durable.store import CallStore

RETAIN = 86_400.0


@dataclass(frozen=True, slots=True)
class Durability:
    """How a store is used.

    Attributes:
        store: where calls are stored.
        forks: what happens when a round is answered again, differently: the answer is refused
            (``reject``), or a line of its own begins there (``fork``).
        spill: a state of more bytes, uncompressed, stays in the store, and the client gets a reference to it.
        lease: seconds until the call of a worker that has died can be run by another.
        expire_after: seconds without a request from the client after which a call expires: its
            compensations are run, and it cannot be continued. Of an agent's call, seconds for which
            a question is open: one that is answered in time goes on however late a worker comes.
        retry_undo_after: seconds until compensations that have failed are tried again.
        retain: seconds for which a call that has ended stays in the store, to repeat its replies.
    """

    store: CallStore
    forks: Literal["reject", "fork"] = "reject"
    spill: int = 256 * 1024
    lease: float = 15.0
    expire_after: float = 900.0
    retry_undo_after: float = 30.0
    retain: float = RETAIN
