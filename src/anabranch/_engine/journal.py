"""The journal of a call: all that has happened in it, enough to replay it elsewhere.

It is data: entries, open questions, compensations, deadlines. It runs nothing, and does not decide
whether an entry fits a replay; ``cursor.py`` does. Its text form is in ``journal_text.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from pydantic import JsonValue

from anabranch._engine import journal_text
from anabranch.messages import LogLevel

FORMAT = 2

MARKER = "patched"
"""The kind of an entry that says which way a call takes at a change of its code (``markers.py``)."""

AskKind = Literal["sample", "elicit", "url", "sleep", "call"]
"""Who answers: a model, the user (two ways), the clock, or the application that runs a tool of its own.

``open_asks.py`` has the rules of the clock. No body asks the last: the agent does, for its model.
"""


@dataclass(slots=True)
class Entry:
    """One recorded outcome.

    ``error`` is the JSON of an error (``errors.error_to_json``), or ``None`` for a ``value``.
    ``tokens`` is what the entry cost; ``None`` says that it has not been charged yet.
    ``public`` says that the client has seen the value. ``key`` is the idempotency key under which a
    step has just been run; it is not recorded.
    """

    kind: str
    fingerprint: str
    value: JsonValue = None
    error: dict[str, Any] | None = None
    tokens: int | None = 0
    public: bool = False
    key: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for an ask: a ``value``, or an ``error`` in the journal's form."""

    value: JsonValue = None
    error: dict[str, Any] | None = None


class Ask(NamedTuple):
    """What the call waits for: a request that is answered from outside, or a sleep, by the clock.

    ``request`` is one of the request shapes of ``messages.py``; the engine only carries it.
    """

    step_id: str
    kind: AskKind
    request: Any
    fingerprint: str

    @property
    def is_question(self) -> bool:
        """Whether it is answered from outside."""
        return self.kind != "sleep"


@dataclass(frozen=True, slots=True)
class Notice:
    """A log line (``level`` set) or a progress message, to be delivered once.

    A round that a crash has interrupted delivers its notices again: under the same ``id``, which no
    other notice has. It is empty where a notice comes from a server that gives it none.
    """

    message: str
    level: LogLevel | None = None
    progress: float | None = None
    total: float | None = None
    id: str = ""


@dataclass(slots=True)
class Compensation:
    """An undo that must run if the call fails: by name, since a folded step is not run again.

    ``undo`` and ``step`` are the functions' ``module:qualname`` where they can be found that way
    (the step's says how to read its value). Once the step's own entry has been folded away,
    ``folded`` is set and its ``value`` is stored here.
    """

    step_id: str
    undo: str | None
    step: str | None
    value: JsonValue = None
    folded: bool = False


_DICT = cast("Callable[[], Any]", dict)
_LIST = cast("Callable[[], Any]", list)
_SET = cast("Callable[[], Any]", set)
"""Not ``list[Compensation]``, which type checkers like better: calling that takes far longer."""


@dataclass(slots=True)
class Journal:
    """All that is recorded of one call.

    Attributes:
        call_id: the call's name.
        started: when the call began, seconds since the epoch.
        rounds: how many rounds have ended with open questions.
        entries: step id to outcome.
        pending: step id to (kind, fingerprint) of the asks that are open.
        latest: the steps that were answered since the last round; not part of the text.
        held: the sleeps that do not end in the next round; not part of the text.
        unread: the answers that no body has read (``wordings.py``); not part of the text.
        reserved: step id to the tokens that are reserved for it and not settled yet, and to how
            many of them its reply may have.
        delivered: scope path to how many of its notices have been delivered.
        progressed: how many progress messages have been delivered in all.
        deadlines: branch path to when the branch must be done; ``None`` once it was done in time
            but could not be folded.
        compensations: undos, in the order in which their steps were done.
        fork: which line of this call it is; empty for the first. Another begins where a round
            that had been answered was answered differently.
        secret: what the call's randomness follows from; no client has it.
        stalled: how many rounds in a row were cut off, and brought nothing new.
        forks: for each fork, the line before it, and how many steps each scope had done by then.
        trace: what a tracer of the call has to know in the next round; empty if there is none.
    """

    call_id: str
    started: float
    rounds: int = 0
    entries: dict[str, Entry] = field(default_factory=_DICT)
    pending: dict[str, tuple[str, str]] = field(default_factory=_DICT)
    delivered: dict[str, int] = field(default_factory=_DICT)
    deadlines: dict[str, float | None] = field(default_factory=_DICT)
    compensations: list[Compensation] = field(default_factory=_LIST)
    progressed: int = 0
    fork: str = ""
    secret: str = ""
    stalled: int = 0
    forks: list[tuple[str, dict[str, int]]] = field(default_factory=_LIST)
    reserved: dict[str, tuple[int, int]] = field(default_factory=_DICT)
    trace: str = ""
    latest: list[str] = field(default_factory=_LIST, compare=False)
    held: list[str] = field(default_factory=_LIST, compare=False)
    unread: set[str] = field(default_factory=_SET, compare=False)

    @property
    def questions(self) -> dict[str, tuple[str, str]]:
        """Those of ``pending`` that are answered from outside: all but the sleeps."""
        return {step_id: asked for step_id, asked in self.pending.items() if asked[0] != "sleep"}

    @property
    def line(self) -> str:
        """The name of this line of the call: effects are done, and stored, under it."""
        return self.call_id + self.fork

    def begin_line(self, suffix: str) -> None:
        """Become the journal of another line of the call, which continues from here.

        What was done before the fork is the first line's to undo.
        """
        steps = (each for each, entry in self.entries.items() if entry.kind == "step")
        done = Counter(step_id.rpartition("/")[0] for step_id in steps)
        self.forks.append((self.fork, dict(done)))
        self.fork += suffix
        self.compensations.clear()

    def line_of(self, path: str, number: int) -> str:
        """Return the line that does, or has done, step ``number`` of the scope at ``path``."""
        before = (fork for fork, done in self.forks if number <= done.get(path, 0))
        return self.call_id + next(before, self.fork)

    def to_open(self, answers: Mapping[str, Answer]) -> dict[str, Answer]:
        """Return those of ``answers`` that answer an open question."""
        questions = self.questions
        return {step_id: answers[step_id] for step_id in answers if step_id in questions}

    def size_with(self, answers: Mapping[str, Answer]) -> int:
        """Return how long, as JSON, all answers are that would be recorded with ``answers``."""
        held = [entry.value for entry in self.entries.values() if entry.public]
        return journal_text.size([*held, *(answer.value for answer in answers.values())])

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Record answers to open questions; anything else in ``answers`` is ignored.

        Whether an answer fits its question is found out when the body takes it.
        """
        for step_id, answer in self.to_open(answers).items():
            self.stalled = 0
            self.latest.append(step_id)
            self.unread.add(step_id)
            kind, asked = self.pending.pop(step_id)
            self.entries[step_id] = Entry(
                kind, asked, answer.value, answer.error, tokens=None, public=True
            )

    def fold(self, step_ids: Collection[str]) -> None:
        """Drop these entries; their compensations take over the values that they need."""
        for due in self.compensations:
            if due.step_id in step_ids and not due.folded:
                due.value = self.entries[due.step_id].value
                due.folded = True
        for step_id in step_ids:
            self.entries.pop(step_id, None)

    def spent(self) -> dict[str, int]:
        """Return tokens by path: each entry counts for every path that encloses it.

        The empty path encloses all.
        """
        ledger: dict[str, int] = {}
        for step_id, entry in self.entries.items():
            if entry.tokens:
                path = step_id
                while path:
                    path = path.rpartition("/")[0]
                    ledger[path] = ledger.get(path, 0) + entry.tokens
        return ledger

    def dumps(self) -> str:
        """Return the text form; :meth:`loads` is its inverse."""
        private: list[list[Any]] = []
        public: list[list[Any]] = []
        prints: list[str] = []
        for step_id, entry in self.entries.items():
            row = [step_id, entry.kind, entry.value]
            if entry.error is not None:
                row += (entry.tokens, entry.error)
            elif entry.tokens != (None if entry.public else 0):
                row.append(entry.tokens)
            if entry.public:
                public.append(row)
                prints.append(entry.fingerprint)
            else:
                private.append([step_id, entry.fingerprint, *row[1:]])
        asked = [[step_id, kind] for step_id, (kind, _) in self.pending.items()]
        prints += [asked for _, asked in self.pending.values()]
        due = [[c.step_id, c.undo, c.step, c.value, c.folded] for c in self.compensations]
        journal_text.shorten_ids(private)
        journal_text.shorten_ids([*public, *asked])
        head = (FORMAT, self.call_id, self.started, self.rounds, journal_text.joined(prints))
        notices = (self.delivered, self.deadlines, self.progressed)
        sent = (*notices, self.fork, self.stalled, self.forks, self.reserved, self.trace)
        return journal_text.render([*head, self.secret, private, due, *sent], [public, asked])

    @classmethod
    def loads(cls, text: str, limit: int = 0) -> Journal:
        """Read the text form. The caller vouches that it is one (states are sealed).

        Raises:
            ValueError: it is not, was written by another version of the format, or inflates to
                more than ``limit`` bytes (0: any number).
        """
        fields, visible = journal_text.parse(text, FORMAT, limit)
        try:
            return cls._read(fields, *visible)
        except (TypeError, IndexError) as problem:
            raise ValueError(f"not the text of a journal: {problem}") from problem

    @classmethod
    def _read(cls, fields: list[Any], public: list[Any], pending: list[Any]) -> Journal:
        padded = [*fields, *_EMPTY[len(fields) :]]
        call_id, started, rounds, joined, secret, private, due, delivered, deadlines, *rest = padded
        journal = cls(
            call_id, started, rounds, delivered=dict(delivered), deadlines=dict(deadlines)
        )
        journal.secret = secret
        journal.progressed, journal.fork, journal.stalled, forks, reserved, journal.trace = rest
        journal.forks = [(fork, done) for fork, done in forks]
        journal.reserved = {
            step_id: (held, reply) for step_id, (held, reply) in dict(reserved).items()
        }
        journal.compensations = [Compensation(*row) for row in due]
        journal_text.restore_ids(private)
        journal_text.restore_ids([*public, *pending])
        prints = journal_text.split(joined)
        for row in private:
            journal._add(row.pop(1), row, public=False)
        for asked, row in zip(prints, public, strict=False):
            journal._add(asked, row, public=True)
        for asked, (step_id, kind) in zip(prints[len(public) :], pending, strict=True):
            journal.pending[step_id] = (kind, asked)
        return journal

    def _add(self, asked: str, row: list[Any], *, public: bool) -> None:
        step_id, kind, value, *rest = row
        tokens = rest[0] if rest else None if public else 0
        error = rest[1] if len(rest) > 1 else None
        self.entries[step_id] = Entry(kind, asked, value, error, tokens, public)


_EMPTY: list[Any] = ["", 0, 0, "", "", (), (), (), (), 0, "", 0, (), (), ""]
"""What a journal's fields are when they are left out at the end."""
