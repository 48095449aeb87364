"""A plain model of a store of calls, in memory, with which real stores are compared.

The model is no store: its methods are not coroutines, and it does one operation at a time.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch._durable import (
    TAKES_ANSWERS,
    TRANSITIONS,
    AnswerRecord,
    CallEvent,
    CallRecord,
    CallState,
    LeaseRecord,
    OpenedRound,
    RoundRecord,
)
from anabranch.errors import StoreError, UnknownCallError
from tests.suites.linearizability import Operation


@dataclass(slots=True)
class _Stored:
    record: CallRecord
    rounds: dict[int, RoundRecord] = field(default_factory=dict[int, RoundRecord])
    entries: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    inbox: dict[str, AnswerRecord] = field(default_factory=dict[str, AnswerRecord])
    undone: set[str] = field(default_factory=set[str])
    opened: tuple[int, str] | None = None

    def change(self, event: CallEvent | None = None, **changes: Any) -> None:
        if event is not None:
            changes["state"] = TRANSITIONS[event][self.record.state]
        self.record = replace(self.record, **changes)

    def is_free(self, owner: str, now: float) -> bool:
        lease = self.record.lease
        return lease is None or lease.owner == owner or lease.until <= now

    def shorten(self, owner: str, now: float, until: float) -> None:
        """Shorten a lease of another owner than ``owner`` that is valid at ``now``, to end by ``until``."""
        lease = self.record.lease
        if lease is not None and lease.until > until and not self.is_free(owner, now):
            self.change(lease=replace(lease, until=until))

    def is_owned(self, owner: str) -> bool:
        return self.record.lease is not None and self.record.lease.owner == owner


class CallModel:
    """The methods of :class:`CallStore`, synchronous and sequential."""

    def __init__(self, process: str = "") -> None:
        self._calls: dict[str, _Stored] = {}
        self._process = process

    def do(self, operation: Operation) -> object:
        """Perform one operation; return a ``StoreError`` as its type."""
        try:
            return getattr(self, operation.method)(*operation.arguments, **operation.options)
        except StoreError:
            return StoreError

    # -- calls -------------------------------------------------------------------------------

    def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        if call.call_id not in self._calls:
            rounds = {} if after is None else {after.number: after}
            self._calls[call.call_id] = _Stored(call, rounds)
        return self._calls[call.call_id].record

    def find(self, call_id: str) -> CallRecord | None:
        known = self._calls.get(call_id)
        return None if known is None else known.record

    def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        states: Collection[CallState] | None = None,
        begins: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        found = [
            known.record
            for known in self._calls.values()
            if tool in {None, known.record.tool}
            and (states is None or known.record.state in states)
            and known.record.call_id.startswith(begins)
            and (after is None or _age(known.record) < _age(after))
        ]
        return sorted(found, key=_age, reverse=True)[:limit]

    def expired(self, now: float, limit: int) -> list[CallRecord]:
        records = [known.record for known in self._calls.values()]
        overdue = [one for one in records if one.state.is_open and one.deadline <= now]
        return sorted(overdue, key=lambda one: (one.deadline, one.call_id))[:limit]

    def open_calls(self) -> tuple[int, float | None, float | None]:
        known = [each.record for each in self._calls.values() if each.record.state.is_open]
        asked = [each.asked for each in known if each.state == CallState.WAITING]
        first = min((each for each in asked if each is not None), default=None)
        return len(known), min((each.started for each in known), default=None), first

    def prune(self, before: float, limit: int) -> int:
        records = [known.record for known in self._calls.values()]
        over = [one for one in records if not one.state.is_open and one.deadline < before]
        pruned = sorted(over, key=lambda one: (one.deadline, one.call_id))[:limit]
        for one in pruned:
            del self._calls[one.call_id]
        return len(pruned)

    # -- leases and states -------------------------------------------------------------------

    def _lease(self, owner: str, until: float) -> LeaseRecord:
        return LeaseRecord(owner, until, self._process)

    def renew(self, call_id: str, owner: str, until: float) -> bool:
        known = self._calls.get(call_id)
        if known is None or not known.is_owned(owner):
            return False
        known.change(lease=self._lease(owner, until))
        return True

    def release(self, call_id: str, owner: str) -> None:
        known = self._calls.get(call_id)
        if known is not None and known.is_owned(owner):
            known.change(CallEvent.LEAVE, lease=None)

    def take_to_undo(
        self, call_id: str, owner: str, now: float, until: float, *, is_due: bool = True
    ) -> CallRecord | None:
        known = self._calls.get(call_id)
        if known is None:
            return None
        is_wanted = known.record.state.is_open and (not is_due or known.record.deadline <= now)
        if not is_wanted or not known.is_free(owner, now):
            known.shorten(owner, now, until)
            return None
        is_stopped = known.record.is_stopped or not is_due
        known.change(CallEvent.UNDO, is_stopped=is_stopped, lease=self._lease(owner, until))
        return known.record

    def move(
        self, call_id: str, event: CallEvent, *, owner: str, deadline: float | None = None
    ) -> bool:
        known = self._calls.get(call_id)
        if known is None or not known.is_owned(owner):
            return False
        if known.record.state not in TRANSITIONS[event]:
            return False
        if event == CallEvent.LEAVE and known.opened is not None:
            self._give_back(known, known.opened[0])
        later = known.record.deadline if deadline is None else deadline
        known.change(event, deadline=later, lease=None)
        return True

    def _give_back(self, known: _Stored, number: int) -> None:
        if any(where == number for where, _ in known.entries.values()):
            return
        for step, each in [*known.inbox.items()]:
            if each.round == number and each.by:
                known.inbox[step] = replace(each, round=None)
            elif each.round == number:
                del known.inbox[step]

    def fail(self, call_id: str, error: str, owner: str) -> bool:
        known = self._calls.get(call_id)
        if known is None or not known.is_owned(owner):
            return False
        is_undoing = known.record.state == CallState.UNDOING
        known.change(CallEvent.FAIL, failure=known.record.failure if is_undoing else error)
        return True

    def adopt(self, call_id: str, version: str, owner: str) -> bool:
        known = self._calls.get(call_id)
        if known is None or not known.is_owned(owner):
            return False
        known.change(version=version)
        return True

    def hasten(self, call_id: str, deadline: float, state: CallState) -> bool:
        known = self._calls.get(call_id)
        if known is None or known.record.state != state:
            return False
        return self._moved(known, deadline, is_later=False)

    def _moved(self, known: _Stored, deadline: float, *, is_later: bool) -> bool:
        before = known.record.deadline
        if before == deadline or is_later != (deadline > before):
            return False
        known.change(deadline=deadline)
        return True

    # -- rounds ------------------------------------------------------------------------------

    def open_round(
        self,
        call_id: str,
        number: int,
        owner: str,
        now: float,
        until: float,
        *,
        asks: Collection[str] = (),
        answers: Mapping[str, str] | None = None,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        given = dict(answers or {})
        if new is not None and call_id not in self._calls:
            lease = self._lease(owner, until)
            self.begin(replace(new, state=CallState.RUNNING, lease=lease))
            known = self._calls[call_id]
            known.inbox = {step: AnswerRecord(text, "", number) for step, text in given.items()}
            known.opened = number, str(sorted(given.items()))
            return OpenedRound(known.record, None, {}, given, given=known.opened[1], is_leased=True)
        known, entries = self._known(call_id), self.entries(call_id, number)
        inbox = known.inbox
        taken = {step: each for step, each in inbox.items() if each.round == number}
        texts, entered = _texts(taken), _entered(taken)
        found = OpenedRound(known.record, known.rounds.get(number), entries, texts, entered)
        if number in known.rounds or not known.record.state.is_open:
            return found
        if entries or taken:
            is_other = _without(texts, entered) != _without(given, entered)
        else:
            is_other = any(step in inbox and inbox[step].round is not None for step in given)
            taken = {step: AnswerRecord(text) for step, text in given.items()}
            for step in {*asks, *given} & inbox.keys():
                if inbox[step].round is None:  # an answer from another source
                    taken[step] = inbox[step]
        if is_other:
            return found
        if not known.is_free(owner, now):
            known.shorten(owner, now, until)
            return None
        inbox |= {step: replace(each, round=number) for step, each in taken.items()}
        known.change(CallEvent.OPEN, lease=self._lease(owner, until))
        is_undoing = found.call.state == CallState.UNDOING
        undone = frozenset(known.undone if is_undoing else ())
        texts, entered = _texts(taken), _entered(taken)
        known.opened = number, str(sorted(texts.items()))
        return OpenedRound(
            found.call, None, entries, texts, entered, undone, known.opened[1], is_leased=True
        )

    def end_round(
        self, call_id: str, record: RoundRecord, event: CallEvent, *, owner: str, deadline: float
    ) -> RoundRecord:
        known = self._known(call_id)
        is_allowed = known.record.state in TRANSITIONS[event]
        if known.is_owned(owner) and is_allowed and record.number not in known.rounds:
            known.rounds[record.number] = record
            known.change(event, deadline=deadline, asked=record.asked, lease=None)
        if record.number not in known.rounds:
            raise StoreError("The lease is another's by now.")
        return known.rounds[record.number]

    def round(self, call_id: str, number: int) -> RoundRecord | None:
        known = self._calls.get(call_id)
        return None if known is None else known.rounds.get(number)

    def last_round(self, call_id: str) -> RoundRecord | None:
        known = self._calls.get(call_id)
        return known.rounds[max(known.rounds)] if known and known.rounds else None

    # -- answers and entries -----------------------------------------------------------------

    def answer(
        self,
        call_id: str,
        answers: Mapping[str, str],
        *,
        by: str,
        deadline: float | None = None,
        now: float = -math.inf,
    ) -> dict[str, str] | None:
        known = self._known(call_id)
        if known.record.state not in TAKES_ANSWERS or known.record.deadline <= now:
            return None
        for step, text in answers.items():
            known.inbox.setdefault(step, AnswerRecord(text, by))
        if deadline is not None:
            self._moved(known, deadline, is_later=True)
        return {step: known.inbox[step].text for step in answers}

    def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        known = self._calls.get(call_id)
        return {} if known is None else dict(known.inbox)

    def record(
        self, call_id: str, number: int, entries: Mapping[str, str], *, given: str = ""
    ) -> dict[str, str]:
        known = self._known(call_id)
        is_of_round = known.opened is not None and known.opened[0] == number
        is_other = given and is_of_round and known.opened != (number, given)
        if is_other and not known.entries.keys() >= entries.keys():
            raise StoreError("The round was opened with other answers.")
        return {
            step_id: known.entries.setdefault(step_id, (number, text))[1]
            for step_id, text in entries.items()
        }

    def entries(self, call_id: str, number: int) -> dict[str, str]:
        known = self._calls.get(call_id)
        entries = {} if known is None else known.entries
        return {step_id: text for step_id, (where, text) in entries.items() if where == number}

    def undone(self, call_id: str, step_id: str) -> None:
        self._known(call_id).undone.add(step_id)

    def undone_steps(self, call_id: str) -> frozenset[str]:
        known = self._calls.get(call_id)
        return frozenset() if known is None else frozenset(known.undone)

    def _known(self, call_id: str) -> _Stored:
        if call_id not in self._calls:
            raise UnknownCallError(call_id)
        return self._calls[call_id]


def _texts(answers: Mapping[str, AnswerRecord]) -> dict[str, str]:
    return {step: each.text for step, each in answers.items()}


def _entered(answers: Mapping[str, AnswerRecord]) -> frozenset[str]:
    return frozenset(step for step, each in answers.items() if each.by)


def _without(texts: Mapping[str, str], steps: Collection[str]) -> dict[str, str]:
    return {step: text for step, text in texts.items() if step not in steps}


def _age(record: CallRecord) -> tuple[float, str]:
    return record.started, record.call_id
