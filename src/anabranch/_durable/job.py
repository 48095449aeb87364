"""One request to run a call, and the policy of its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anabranch._asking import Host
from anabranch._durable.store import CallStore
from anabranch._engine import Sink, Watch
from anabranch.tool import Tool

RETAIN = 86_400.0


@dataclass(frozen=True, slots=True)
class Durability:
    """A server's store of calls, with the rules for forks, leases and expiry.

    Attributes:
        store: the store of the calls.
        forks: the reaction to a second, different answer to a question: refuse the answer
            (``reject``), or continue a copy of the call with it (``fork``).
        spill: maximum uncompressed bytes of a state that the client carries; a larger state stays
            in the store, and the client gets a reference.
        lease: seconds for which a worker reserves a call; then another worker may run the call of a
            dead worker.
        expire_after: seconds without a request from the client after which a call expires: its
            undos run, and nobody can continue it. For an agent's call, seconds for which a question
            is open; a call answered in time continues even if a worker comes later.
        retry_undo_after: seconds until failed undos are tried again.
        retain: seconds for which an ended call stays in the store, so that repeated requests get
            its reply.
    """

    store: CallStore
    forks: Literal["reject", "fork"] = "reject"
    spill: int = 256 * 1024
    lease: float = 15.0
    expire_after: float = 900.0
    retry_undo_after: float = 30.0
    retain: float = RETAIN


@dataclass(frozen=True, slots=True)
class Job:
    """One request to run a call.

    Attributes:
        arguments: the arguments that the tool's ``validate`` has returned.
        host: the capabilities of the client, or of this server.
        node: the node of the thread that calls the tool; empty for none, like ``thread``.
        cuts_effects: whether the cancellation of a recorded round also cancels its effects.
        wakes: whether a sleeping call continues without its client, and does not expire meanwhile.
        begins_lines: whether a later round may begin a line that the store does not have, from a
            state that a conversation has stored.
        answers_first: whether a round's answers came before the ends of its sleeps, however late
            the round runs; the caller that stored them has decided so.
        max_request: maximum bytes of the client's next request, if it carries the call's state.
        seals_arguments: whether that request carries the arguments in the token of the state.
    """

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    host: Host
    sink: Sink
    principal: str = ""
    thread: str = ""
    node: str = ""
    cuts_effects: Callable[[], bool] = lambda: False
    watch: Watch | None = None
    wakes: bool = False
    begins_lines: bool = False
    answers_first: bool = False
    max_request: int | None = None
    seals_arguments: bool = False
