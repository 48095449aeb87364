"""The journal of a call: a record from which any server can replay the call."""

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
"""The kind of an entry that records the way of a call at a code change (``markers.py``)."""

DEFAULTS = "defaults"
"""The kind of an entry that records a value with defaults that a function made."""

AskKind = Literal["sample", "elicit", "url", "sleep", "call"]
"""The kinds of asks; the clock ends ``sleep``, and an application runs its own tool for ``call``."""


@dataclass(slots=True)
class Entry:
    """One recorded outcome.

    ``error`` is the JSON of an error, or ``None`` for a ``value``. ``tokens`` is ``None`` until the
    cost is charged. ``public`` says whether the client has seen the value. ``key`` is the
    idempotency key of a step that has just run; it is not recorded.
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
    """An answer to an ask: a ``value``, or an ``error`` in the journal's form."""

    value: JsonValue = None
    error: dict[str, Any] | None = None


class Ask(NamedTuple):
    """A request for an answer from outside, or a sleep; the engine only carries the ``request``."""

    step_id: str
    kind: AskKind
    request: Any
    fingerprint: str

    @property
    def is_question(self) -> bool:
        return self.kind != "sleep"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message of a tool to its client: a log message (with ``level``) or a progress message.

    After a crash, a notice may arrive twice with the same ``id``, which no other notice has. The
    ``id`` is empty if a remote server sent the notice without an id.
    """

    message: str
    level: LogLevel | None = None
    progress: float | None = None
    total: float | None = None
    id: str = ""


@dataclass(slots=True)
class Compensation:
    """An undo that must run if the call fails, stored by name, because no replay runs a folded step.

    ``undo`` and ``step`` are the functions' ``module:qualname``, if a module has them under it. If
    ``folded``, the step's entry is gone, and its ``value`` is stored here.
    """

    step_id: str
    undo: str | None
    step: str | None
    value: JsonValue = None
    folded: bool = False


_DICT = cast("Callable[[], Any]", dict)
_LIST = cast("Callable[[], Any]", list)
_SET = cast("Callable[[], Any]", set)
"""Factories of fields. A call of ``list[Compensation]`` would take far longer."""


@dataclass(slots=True)
class Journal:
    """The record of one call.

    A *line* is one history of the call. Another line begins if a client answers a round a second
    time and differently.

    Attributes:
        started: start of the call, seconds since the epoch.
        rounds: number of rounds that have ended with open questions.
        pending: step id to (kind, fingerprint) of each open ask.
        latest: steps answered since the last round; not part of the text.
        held: sleeps that do not end in the next round; not part of the text.
        unread: answers that no body has read (``open_asks.py``); not part of the text.
        reserved: step id to the tokens reserved and not settled yet, and to the maximum for its reply.
        delivered: scope path to the number of its notices that have been delivered.
        progressed: number of progress messages delivered in the whole call.
        deadlines: branch path to the time by which the branch must end; ``None`` if the branch ended
            in time but could not be folded.
        fork: name of this line; empty for the first.
        secret: seed of the call's randomness; no client has it.
        stalled: number of rounds in a row that were cut off and brought nothing new.
        forks: for each fork, the line before it, and the number of steps of each scope by then.
        trace: state of the call's tracer for the next round; empty without a tracer.
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
        """The asks of ``pending`` that are answered from outside: all but the sleeps."""
        return {step_id: asked for step_id, asked in self.pending.items() if asked[0] != "sleep"}

    @property
    def line(self) -> str:
        """The name of the call's current line: stores and idempotency keys name effects by the line."""
        return self.call_id + self.fork

    def begin_line(self, suffix: str) -> None:
        """Continue the call under another name, its new *line*, whose effects are recorded apart.

        The first line keeps the undos of all steps before the fork.
        """
        steps = (each for each, entry in self.entries.items() if entry.kind == "step")
        done = Counter(step_id.rpartition("/")[0] for step_id in steps)
        self.forks.append((self.fork, dict(done)))
        self.fork += suffix
        self.compensations.clear()

    def line_of(self, path: str, number: int) -> str:
        """Return the line that runs, or has run, step ``number`` of the scope at ``path``."""
        before = (fork for fork, done in self.forks if number <= done.get(path, 0))
        return self.call_id + next(before, self.fork)

    def to_open(self, answers: Mapping[str, Answer]) -> dict[str, Answer]:
        questions = self.questions
        return {step_id: answers[step_id] for step_id in answers if step_id in questions}

    def size_with(self, answers: Mapping[str, Answer]) -> int:
        """Return the length, as JSON, of all answers recorded so far together with ``answers``."""
        held = [entry.value for entry in self.entries.values() if entry.public]
        return journal_text.size([*held, *(answer.value for answer in answers.values())])

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Record answers to open questions; ignore all other items of ``answers``.

        The body checks whether an answer fits its question when it takes the answer.
        """
        for step_id, answer in self.to_open(answers).items():
            # Answers are progress, and reset the count of stalled rounds:
            # test_a_call_cut_off_repeatedly_without_progress_fails.
            self.stalled = 0
            self.latest.append(step_id)
            self.unread.add(step_id)
            kind, asked = self.pending.pop(step_id)
            self.entries[step_id] = Entry(
                kind, asked, answer.value, answer.error, tokens=None, public=True
            )

    def fold(self, step_ids: Collection[str]) -> None:
        """Drop the entries ``step_ids``, but store the values of steps that have compensations."""
        for due in self.compensations:
            if due.step_id in step_ids and not due.folded:
                # The undo would get no value: test_the_undo_of_a_folded_branch_is_found_by_its_name.
                due.value = self.entries[due.step_id].value
                due.folded = True
        for step_id in step_ids:
            self.entries.pop(step_id, None)

    def spent(self) -> dict[str, int]:
        """Return the spent tokens of all entries inside each path; the empty path encloses all."""
        ledger: dict[str, int] = {}
        for step_id, entry in self.entries.items():
            if entry.tokens:
                path = step_id
                while path:
                    path = path.rpartition("/")[0]
                    ledger[path] = ledger.get(path, 0) + entry.tokens
        return ledger

    def dumps(self) -> str:
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
        """Read a journal from its text form, which the calling code has authenticated.

        Raises ``ValueError`` if ``text`` is no journal of this format, or inflates to more than
        ``limit`` bytes (0: any number).
        """
        fields, visible = journal_text.parse(text, FORMAT, limit)
        try:
            return cls._read(fields, *visible)
        except (TypeError, IndexError) as problem:
            raise ValueError(
                f"the stored text is not a journal that this release can read: {problem}"
            ) from problem

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
"""The values of fields that the text leaves out at its end."""
