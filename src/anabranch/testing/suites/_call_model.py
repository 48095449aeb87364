"""A store of calls as a plain model in memory, which real stores are compared with.

It is not a store itself: its methods are not coroutines, and it does one thing at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch._durable.store import CallRecord, LeaseRecord, OpenedRound, RoundRecord
from anabranch.errors import StoreError, UnknownCallError
from anabranch.testing.suites._linearizability import Operation

__all__ = ["CallModel"]


@dataclass(slots=True)
class _Stored:
    record: CallRecord
    owner: str | None = None
    leased_until: float = 0.0
    rounds: dict[int, RoundRecord] = field(default_factory=dict[int, RoundRecord])
    entries: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])


class CallModel:
    """The methods of :class:`CallStore`, at once and one after the other."""

    def __init__(self) -> None:
        self._calls: dict[str, _Stored] = {}

    def do(self, operation: Operation) -> object:
        """Do one operation; a ``StoreError`` is returned as its type."""
        try:
            return getattr(self, operation.method)(*operation.arguments, **operation.options)
        except StoreError:
            return StoreError

    def begin(self, call: CallRecord) -> CallRecord:
        """See the port."""
        return self._calls.setdefault(call.call_id, _Stored(call)).record

    def find(self, call_id: str) -> CallRecord | None:
        """See the port."""
        known = self._calls.get(call_id)
        return None if known is None else known.record

    def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        status: str | None = None,
        begins: str = "",
        recorded: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        """See the port."""
        found = [
            known.record
            for known in self._calls.values()
            if tool in {None, known.record.tool}
            and status in {None, known.record.status}
            and known.record.call_id.startswith(begins)
            and (not recorded or recorded in known.entries)
            and (after is None or _age(known.record) < _age(after))
        ]
        return sorted(found, key=_age, reverse=True)[:limit]

    def leased(self, call_id: str) -> LeaseRecord | None:
        """See the port."""
        known = self._calls.get(call_id)
        if known is None or known.owner is None:
            return None
        return LeaseRecord(known.owner, known.leased_until)

    def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        """See the port."""
        known = self._known(call_id)
        if known.owner not in {None, owner} and known.leased_until > now:
            known.leased_until = min(known.leased_until, until)
            return False
        known.owner, known.leased_until = owner, until
        return True

    def renew(self, call_id: str, owner: str, until: float) -> bool:
        """See the port."""
        if not self._holds(call_id, owner):
            return False
        self._calls[call_id].leased_until = until
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
        known, entries = self._known(call_id), self.entries(call_id, number)
        if number not in known.rounds and not self.lease(call_id, owner, now, until):
            return None
        return OpenedRound(known.record, known.rounds.get(number), entries)

    def release(self, call_id: str, owner: str) -> None:
        """See the port."""
        known = self._calls.get(call_id)
        if known is not None and known.owner == owner:
            known.owner = None

    def record(
        self,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        *,
        owner: str | None = None,
    ) -> dict[str, str]:
        """See the port."""
        known = self._known(call_id)
        if not (self._holds(call_id, owner) or known.entries.keys() >= entries.keys()):
            raise StoreError("The lease is another's by now.")
        return {
            step_id: known.entries.setdefault(step_id, (number, text))[1]
            for step_id, text in entries.items()
        }

    def entries(self, call_id: str, number: int) -> dict[str, str]:
        """See the port."""
        known = self._calls.get(call_id)
        entries = {} if known is None else known.entries
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
        known, held = self._known(call_id), self._holds(call_id, release)
        if release is not None:
            self.release(call_id, release)
        if record.number in known.rounds:
            return known.rounds[record.number]
        if not held:
            raise StoreError("The lease is another's by now.")
        known.rounds[record.number] = record
        if known.record.status == "open":
            known.record = replace(known.record, status=status, asked=record.asked)
            if deadline is not None:
                known.record = replace(known.record, deadline=deadline)
        return record

    def round(self, call_id: str, number: int) -> RoundRecord | None:
        """See the port."""
        known = self._calls.get(call_id)
        return None if known is None else known.rounds.get(number)

    def last_round(self, call_id: str) -> RoundRecord | None:
        """See the port."""
        known = self._calls.get(call_id)
        return known.rounds[max(known.rounds)] if known and known.rounds else None

    def finish(
        self,
        call_id: str,
        status: str,
        *,
        deadline: float | None = None,
        version: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """See the port."""
        known = self._calls.get(call_id)
        if known is None or known.record.status != "open" or not self._holds(call_id, owner):
            return False
        known.record = replace(known.record, status=status)
        if deadline is not None:
            known.record = replace(known.record, deadline=deadline)
        if version is not None:
            known.record = replace(known.record, version=version)
        return True

    def expired(self, now: float, limit: int) -> list[CallRecord]:
        """See the port."""
        records = [known.record for known in self._calls.values()]
        overdue = [one for one in records if one.status == "open" and one.deadline <= now]
        return sorted(overdue, key=lambda one: (one.deadline, one.call_id))[:limit]

    def open_calls(self) -> tuple[int, float | None, float | None]:
        """See the port."""
        known = [each for each in self._calls.values() if each.record.status == "open"]
        began = [each.record.started for each in known]
        asked = [each.record.asked for each in known if each.owner is None]
        first = min((each for each in asked if each is not None), default=None)
        return len(began), min(began, default=None), first

    def prune(self, before: float, limit: int) -> int:
        """See the port."""
        records = [known.record for known in self._calls.values()]
        over = [one for one in records if one.status != "open" and one.deadline < before]
        pruned = sorted(over, key=lambda one: (one.deadline, one.call_id))[:limit]
        for one in pruned:
            del self._calls[one.call_id]
        return len(pruned)

    def _holds(self, call_id: str, owner: str | None) -> bool:
        """Whether ``owner`` has the lease; no lease is needed where none is named."""
        known = self._calls.get(call_id)
        return owner is None or (known is not None and known.owner == owner)

    def _known(self, call_id: str) -> _Stored:
        if call_id not in self._calls:
            raise UnknownCallError(call_id)
        return self._calls[call_id]


def _age(record: CallRecord) -> tuple[float, str]:
    return record.started, record.call_id
