"""The end of a round: as the text that a store has of it, and as an outcome again.

The text is JSON with one of these keys: ``value`` (the tool returned), ``asked`` (open questions,
as the edge named by ``kind`` replied with them), ``error`` (an error of this library, ``null`` for
one that is masked, with its ``error_id``), ``foreign`` (an error of the protocol, see
:class:`ForeignErrors`); or none, for a value that cannot be written down.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol, TypeVar

from anabranch._durable.policy import Durability
from anabranch._durable.states import handed_out
from anabranch._durable.store import RoundRecord
from anabranch._engine import Ask, Finished, codec_of
from anabranch.errors import (
    IdempotencyKeyError,
    InvalidTokenError,
    SerializationError,
    ToolError,
    error_from_json,
    error_id,
    error_to_json,
    with_error_id,
)
from anabranch.tool import Tool

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


class Replies(Protocol[R]):
    """How an edge asks open questions: the reply that it makes, and that reply in a store."""

    @property
    def kind(self) -> str:
        """The edge's name; a reply of another kind cannot be repeated here."""
        ...

    def make(self, asks: tuple[Ask, ...], state: str, /) -> R:
        """Return the reply that asks ``asks`` and hands out ``state``."""
        ...

    def dump(self, reply: R, /) -> dict[str, Any]:
        """Return the reply as JSON; what the state says need not be in it."""
        ...

    def load(self, stored: dict[str, Any], state: str, /) -> R:
        """Return the reply again."""
        ...


class ForeignErrors(Protocol):
    """Errors that are not this library's, and that a client is nevertheless shown as they are."""

    def dump(self, error: Exception, /) -> dict[str, Any] | None:
        """Return the error as JSON, ``None`` if it is not one of these."""
        ...

    def load(self, stored: dict[str, Any], /) -> Exception:
        """Return the error again."""
        ...


_ONLY_ONCE = "This call has ended, and its result cannot be given a second time."


def value_text(tool: Tool[Any], value: object) -> str:
    """Return the text for a tool that returned ``value``."""
    try:
        return _dumps({"value": codec_of(tool.returned_by).encode(tool.name, value)})
    except SerializationError:
        return "{}"


def asked_text(replies: Replies[R], reply: R) -> str:
    """Return the text for a round that ended with open questions."""
    return _dumps({"kind": replies.kind, "asked": replies.dump(reply)})


def error_text(error: Exception, foreign: ForeignErrors | None) -> str:
    """Return the text for a call that failed."""
    dumped = None if foreign is None else foreign.dump(error)
    if dumped is not None:
        return _dumps({"foreign": dumped})
    written = error_to_json(error)
    return _dumps({"error": written} | ({} if written else {"error_id": error_id(error)}))


def repeat_reply(
    policy: Durability, replies: Replies[R], line: str, record: RoundRecord
) -> R | None:
    """Return the reply of a round that ended with open questions, ``None`` for another edge's."""
    stored = json.loads(record.reply)
    if stored.get("kind") != replies.kind:
        return None
    return replies.load(stored["asked"], handed_out(policy, line, record.number, record.state))


def repeat_value(
    tool: Tool[Any], line: str, record: RoundRecord, foreign: ForeignErrors | None
) -> Finished[Any]:
    """Return the value of a call that has ended.

    Raises:
        InvalidTokenError: the round has ended with questions, which are asked at another edge.
        IdempotencyKeyError: the same, of a first request.
        ToolError: the value could not be written down.
        Exception: what the call has raised.
    """
    stored = json.loads(record.reply)
    if "asked" in stored:
        logger.warning("call %r was refused: it waits at another edge", line)
        if record.number == 0:  # it came with a key, not with a token
            raise IdempotencyKeyError("its call was begun in another way; repeat it in that way")
        raise InvalidTokenError
    if foreign is not None and "foreign" in stored:
        raise foreign.load(stored["foreign"])
    if "error" in stored:
        raise with_error_id(load_error(stored["error"]), stored.get("error_id", ""))
    if "value" not in stored:
        raise ToolError(_ONLY_ONCE)
    return Finished(codec_of(tool.returned_by).decode(tool.name, stored["value"]))


def load_error(error: dict[str, Any] | None) -> Exception:
    """Return the error that a call has failed with before; one that is masked again if it was."""
    if error is None:
        return RuntimeError("the tool failed when it was first run")
    return error_from_json(error)


def _dumps(reply: dict[str, Any]) -> str:
    # Not the canonical spelling: a form's fields come again in the order in which they came.
    return json.dumps(reply, separators=(",", ":"))
