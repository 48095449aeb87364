"""The recorder of one round: it writes each effect to the store before the body sees its value."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

from anabranch._durable.entries import dump_entry, load_entry
from anabranch._durable.lease import Lease
from anabranch._durable.store import CallStore, RoundRecord
from anabranch._engine import Ask, Compensation, Entry, Finished, Journal, canonical, codec_of
from anabranch.errors import (
    IdempotencyKeyError,
    InvalidTokenError,
    SerializationError,
    StoreError,
    ToolError,
    UnknownCallError,
    error_from_json,
    error_id,
    error_to_json,
    with_error_id,
)
from anabranch.tool import Tool

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


class Replies(Protocol[R]):
    """Makes an edge's replies with open questions, and converts them to and from the store's JSON."""

    @property
    def kind(self) -> str:
        """The edge's name; this edge cannot repeat a reply of another kind."""
        ...

    def make(self, asks: tuple[Ask, ...], state: str, /) -> R:
        """Return the reply with the questions ``asks``, and with ``state`` for the client."""
        ...

    def dump(self, reply: R, /) -> dict[str, Any]:
        """Return the reply as JSON, which may omit everything that the state contains."""
        ...

    def load(self, stored: dict[str, Any], state: str, /) -> R: ...


class ForeignErrors(Protocol):
    """Errors of other libraries that a client may see unchanged."""

    def dump(self, error: Exception, /) -> dict[str, Any] | None:
        """Return the error as JSON, or ``None`` if it is not such an error."""
        ...

    def load(self, stored: dict[str, Any], /) -> Exception: ...


def value_reply(tool: Tool[Any], value: object) -> dict[str, Any]:
    """Return the stored reply of a round that returned ``value``; empty if JSON cannot hold it."""
    try:
        return {"value": codec_of(tool.returned_by).encode(tool.name, value)}
    except SerializationError:
        return {}


def error_reply(error: Exception, foreign: ForeignErrors | None) -> dict[str, Any]:
    dumped = None if foreign is None else foreign.dump(error)
    if dumped is not None:
        return {"foreign": dumped}
    written = error_to_json(error)
    return {"error": written} | ({} if written else {"error_id": error_id(error)})


def repeat_value(
    tool: Tool[Any], line: str, record: RoundRecord, foreign: ForeignErrors | None
) -> Finished[Any]:
    """Return the value of an ended call, or raise its error; refuse a round of another edge."""
    stored = json.loads(record.reply)
    if "asked" in stored:
        logger.warning("call %r was refused: it waits at another edge", line)
        if record.number == 0:  # the request has a key, and no token
            raise IdempotencyKeyError(
                "another kind of request started the call; repeat that request"
            )
        raise InvalidTokenError
    if foreign is not None and "foreign" in stored:
        raise foreign.load(stored["foreign"])
    if "error" in stored:
        raise with_error_id(load_error(stored["error"]), stored.get("error_id", ""))
    if "value" not in stored:
        raise ToolError(
            "This call has ended. Its result could not be stored, so it cannot be sent again."
        )
    return Finished(codec_of(tool.returned_by).decode(tool.name, stored["value"]))


def load_error(error: dict[str, Any] | None) -> Exception:
    """Return the error in a stored reply; in place of a masked error, a ``RuntimeError``."""
    if error is None:
        return RuntimeError("the tool failed when it was first run")
    return error_from_json(error)


T = TypeVar("T")


class StoreRecorder:
    """Writes the actions of one round to a store, under a lease on the call."""

    def __init__(self, store: CallStore, journal: Journal, lease: Lease, given: str = "") -> None:
        self.check = lease.check
        self._lease = lease
        self._store = store
        self._line = journal.line
        self._number = journal.rounds
        self._given = given
        self._deadlines = journal.deadlines
        self._written_deadlines = dict(journal.deadlines)

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> dict[str, Entry]:
        """Write ``entries``; return what the store then holds: for each id, the first entry.

        The fact ``unrecorded`` of a ``StoreError`` lists the actions that happened without a
        record, and the client may see its message.
        """
        if not entries:
            return {}
        done = {
            f"step {step_id!r} (idempotency key {entry.key!r})"
            for step_id, entry in entries.items()
            if entry.key
        }
        # A branch's time counts from its beginning, even if another worker continues. Only entries
        # that were recorded since show that it has begun.
        now = dict(self._deadlines)
        news = dict(now.items() - self._written_deadlines.items())
        texts = {
            step_id: dump_entry(entry, compensations.get(step_id), {} if number else news)
            for number, (step_id, entry) in enumerate(entries.items())
        }
        write = partial(self._store.record, self._line, self._number, texts, given=self._given)
        stored = await self._written(write, ", ".join(sorted(done)))
        first = next(iter(texts))
        if stored[first] == texts[first]:  # another worker's entry lacks these deadlines
            self._written_deadlines = now
        return {step_id: load_entry(stored[step_id]).entry for step_id in entries}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed; raise ``StoreError`` if another worker has the call.

        That worker continues the call, so this one must not undo the effects.
        """
        if not await self._store.fail(self._line, canonical(error), self._lease.owner):
            raise StoreError(f"Another worker has the lease on call {self._line!r}. Try again.")

    async def undone(self, step_id: str) -> None:
        write = partial(self._store.undone, self._line, step_id)
        await self._written(write, f"the undo of step {step_id!r}")

    async def _written(self, write: Callable[[], Awaitable[T]], done: str) -> T:
        """Return the result of ``write``; an error of the store names the effect ``done``."""
        try:
            return await (self._lease.while_held(write) if done else write())
        except UnknownCallError:
            raise
        except StoreError as error:
            if done:
                raise StoreError(
                    "This server cannot reach its store just now, and could not record this"
                    f" work: {done}. Send the same request again; the work may then happen a second"
                    " time.",
                    unrecorded=done,
                ) from error
            raise
