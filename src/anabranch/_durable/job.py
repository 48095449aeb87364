"""One request to run a call: a tool, its arguments, and who is on the other side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch._asking.host import Host
from anabranch._engine import Sink
from anabranch._engine.folding import Watch
from anabranch.tool import Tool


@dataclass(frozen=True, slots=True)
class Job:
    """What one request asks for.

    Attributes:
        tool: what is called.
        arguments: as its ``validate`` has returned them.
        host: what the client, or this server, can answer.
        sink: where notices go.
        principal: who calls, if that is known.
        cuts_effects: says of a recorded round that is cancelled whether its effects are cancelled,
            too, instead of awaited and recorded.
        watch: reports the branches of the call.
        wakes: whether a call that sleeps goes on without its client, and does not expire meanwhile.
        begins_lines: whether a later round begins a line that the store does not have, from its
            state: a conversation has stored that.
        answers_first: whether a round's answers came before the ends of its sleeps, however late
            the round is run: who stored them has decided that.
        max_request: bytes that the client's next request may have, if it carries the state of the call.
        seals_arguments: whether that request carries the arguments in the token of the state.
    """

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    host: Host
    sink: Sink
    principal: str = ""
    cuts_effects: Callable[[], bool] = lambda: False
    watch: Watch | None = None
    wakes: bool = False
    begins_lines: bool = False
    answers_first: bool = False
    max_request: int | None = None
    seals_arguments: bool = False
