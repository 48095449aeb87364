"""What a store of calls is to do, in its plainest form.

Owns the reference that real stores are compared with, and the search for an order that explains
what several clients saw at the same time. The model is no store: it keeps nothing, knows no
waiting, and does one thing at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio

from anabranch._durable.store import CallRecord, OpenedRound, RoundRecord
from anabranch.errors import StoreError, UnknownCallError

__all__ = ["CallModel", "Model", "Operation", "Seen", "explains", "run_clients"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a method of a store."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw: an operation, when it began and ended (in ticks), and what it gave."""

    operation: Operation
    began: int
    ended: int
    result: object


@dataclass(slots=True)
class _Kept:
    record: CallRecord
    owner: str | None = None
    leased_until: float = 0.0
    rounds: dict[int, RoundRecord] = field(default_factory=dict[int, RoundRecord])
    entries: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])


class Model(Protocol):
    """A kind of store in its plainest form."""

    def do(self, operation: Operation) -> object:
        """Do one operation; a ``StoreError`` is returned as its type."""
        ...


class CallModel:
    """The methods of :class:`CallStore`, at once and one after the other."""

    def __init__(self) -> None:
        self._calls: dict[str, _Kept] = {}

    def do(self, operation: Operation) -> object:
        """Do one operation; a ``StoreError`` is returned as its type."""
        try:
            return getattr(self, operation.method)(*operation.arguments, **operation.options)
        except StoreError:
            return StoreError

    def begin(self, call: CallRecord) -> CallRecord:
        """See the port."""
        return self._calls.setdefault(call.call_id, _Kept(call)).record

    def find(self, call_id: str) -> CallRecord | None:
        """See the port."""
        kept = self._calls.get(call_id)
        return None if kept is None else kept.record

    def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        """See the port."""
        kept = self._known(call_id)
        if kept.owner not in {None, owner} and kept.leased_until > now:
            return False
        kept.owner, kept.leased_until = owner, until
        return True

    def open_round(
        self,
        call_id: str,
        number: int,
        owner: str,
        now: float,
        until: float,
        *,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        """See the port."""
        if new is not None:
            self.begin(new)
        kept, entries = self._known(call_id), self.entries(call_id, number)
        if number not in kept.rounds and not self.lease(call_id, owner, now, until):
            return None
        return OpenedRound(kept.record, kept.rounds.get(number), entries)

    def release(self, call_id: str, owner: str) -> None:
        """See the port."""
        kept = self._calls.get(call_id)
        if kept is not None and kept.owner == owner:
            kept.owner = None

    def record(self, call_id: str, number: int, entries: Mapping[str, str]) -> dict[str, str]:
        """See the port."""
        kept = self._known(call_id)
        return {
            step_id: kept.entries.setdefault(step_id, (number, text))[1]
            for step_id, text in entries.items()
        }

    def entries(self, call_id: str, number: int) -> dict[str, str]:
        """See the port."""
        kept = self._calls.get(call_id)
        entries = {} if kept is None else kept.entries
        return {step_id: text for step_id, (where, text) in entries.items() if where == number}

    def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        *,
        deadline: float | None,
        status: str = "open",
        release: str | None = None,
    ) -> RoundRecord:
        """See the port."""
        kept = self._known(call_id)
        if release is not None:
            self.release(call_id, release)
        if record.number in kept.rounds:
            return kept.rounds[record.number]
        kept.rounds[record.number] = record
        if kept.record.status == "open":
            kept.record = replace(kept.record, status=status)
            if deadline is not None:
                kept.record = replace(kept.record, deadline=deadline)
        return record

    def round(self, call_id: str, number: int) -> RoundRecord | None:
        """See the port."""
        kept = self._calls.get(call_id)
        return None if kept is None else kept.rounds.get(number)

    def last_round(self, call_id: str) -> RoundRecord | None:
        """See the port."""
        kept = self._calls.get(call_id)
        return kept.rounds[max(kept.rounds)] if kept and kept.rounds else None

    def finish(self, call_id: str, status: str, *, deadline: float | None = None) -> bool:
        """See the port."""
        kept = self._calls.get(call_id)
        if kept is None or kept.record.status != "open":
            return False
        kept.record = replace(kept.record, status=status)
        if deadline is not None:
            kept.record = replace(kept.record, deadline=deadline)
        return True

    def abandoned(self, now: float, limit: int) -> list[CallRecord]:
        """See the port."""
        records = [kept.record for kept in self._calls.values()]
        overdue = [one for one in records if one.status == "open" and one.deadline <= now]
        return sorted(overdue, key=lambda one: (one.deadline, one.call_id))[:limit]

    def prune(self, before: float, limit: int) -> int:
        """See the port."""
        records = [kept.record for kept in self._calls.values()]
        over = [one for one in records if one.status != "open" and one.deadline < before]
        pruned = sorted(over, key=lambda one: (one.deadline, one.call_id))[:limit]
        for one in pruned:
            del self._calls[one.call_id]
        return len(pruned)

    def _known(self, call_id: str) -> _Kept:
        if call_id not in self._calls:
            raise UnknownCallError(call_id)
        return self._calls[call_id]


async def run_clients(
    stores: Sequence[object], clients: Sequence[Sequence[Operation]]
) -> list[Seen]:
    """Let clients work at the same time, each on its operations in turn; return what they saw.

    Client ``n`` uses store ``n`` modulo their number.
    """
    seen: list[Seen] = []
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return ticks

    async def work(store: object, operations: Sequence[Operation]) -> None:
        for operation in operations:
            method: Callable[..., Any] = getattr(store, operation.method)
            began = tick()
            try:
                result = await method(*operation.arguments, **operation.options)
            except StoreError:
                result = StoreError
            seen.append(Seen(operation, began, tick(), result))

    async with anyio.create_task_group() as group:
        for number, operations in enumerate(clients):
            group.start_soon(work, stores[number % len(stores)], operations)
    return seen


def explains(model: Model, seen: Sequence[Seen]) -> bool:
    """Whether some order of the operations explains every result (linearizability).

    The order must agree with time: what had ended before another began comes first.
    """
    if not seen:
        return True
    first_end = min(one.ended for one in seen)
    for position, one in enumerate(seen):
        if one.began > first_end:
            continue
        then = copy.deepcopy(model)
        result = then.do(one.operation)
        if _same(result, one.result) and explains(then, [*seen[:position], *seen[position + 1 :]]):
            return True
    return False


def _same(left: object, right: object) -> bool:
    if isinstance(left, OpenedRound) and isinstance(right, OpenedRound):
        return _same(left.entries, right.entries) and left == right
    if isinstance(left, dict) and isinstance(right, dict):  # the order of entries is a promise
        return list(left.items()) == list(right.items())  # pyright: ignore[reportUnknownArgumentType]
    return left == right
