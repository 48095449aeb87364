"""What has happened in a call: enough to replay it elsewhere.

Owns entries, the questions that are open, and their text form between rounds. It never runs
anything and never decides whether an entry fits a replay: ``machine.py`` does.

The text form keeps two parts apart. What the client itself sent or was shown (questions'
fingerprints and its answers) is deflated; what only the server knows (values of steps and of
folded branches) is not. Compressing both together would let a client learn the server's secrets
from the length of the sealed state, by answering with guesses (the CRIME attack).
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from pydantic import JsonValue

from anabranch.messages import LogLevel

__all__ = ["Answer", "Ask", "AskKind", "Entry", "Journal", "Notice", "Owed", "canonical", "fingerprint"]

FORMAT = 1
AskKind = Literal["sample", "elicit", "url"]


@dataclass(slots=True)
class Entry:
    """One recorded outcome.

    ``error`` is the JSON of an error (``errors.error_to_json``), or ``None`` for a ``value``.
    ``tokens`` is what the entry cost; ``None`` says that nobody has settled that yet.
    ``public`` says that the client has seen the value.
    """

    kind: str
    fingerprint: str
    value: JsonValue = None
    error: dict[str, Any] | None = None
    tokens: int | None = 0
    public: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for an ask: a ``value``, or an ``error`` in the journal's form."""

    value: JsonValue = None
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that must be answered from outside the call.

    ``request`` is one of the request shapes of ``messages.py``; the machine only carries it.
    """

    step_id: str
    kind: AskKind
    request: Any
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Notice:
    """A log line (``level`` set) or a progress message, to be delivered once."""

    message: str
    level: LogLevel | None = None
    progress: float | None = None
    total: float | None = None


@dataclass(slots=True)
class Owed:
    """An undo that must run if the call fails: by name, since a folded step is not run again.

    ``undo`` and ``step`` are the functions' ``module:qualname`` where they can be found that way
    (the step's tells how to read its value); ``value`` is kept here once the step's own entry has
    been folded away.
    """

    step_id: str
    undo: str | None
    step: str | None
    value: JsonValue = None
    folded: bool = False


@dataclass(slots=True)
class Journal:
    """All that is recorded of one call.

    Attributes:
        call_id: the call's name; also the seed of its randomness.
        started: when the call began, seconds since the epoch.
        rounds: how many rounds have ended with open questions.
        entries: step id to outcome.
        pending: step id to (kind, fingerprint) of the questions that are open.
        delivered: scope path to how many of its notices have been delivered.
        progressed: how many progress messages have been delivered in all.
        deadlines: branch path to when the branch must be done; ``None`` once it was done in time
            but could not be folded.
        owed: undos, in the order in which their steps were done.
    """

    call_id: str
    started: float
    rounds: int = 0
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    pending: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    delivered: dict[str, int] = field(default_factory=dict[str, int])
    deadlines: dict[str, float | None] = field(default_factory=dict[str, float | None])
    owed: list[Owed] = field(default_factory=list[Owed])
    progressed: int = 0

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Record answers to open questions; anything else in ``answers`` is ignored.

        Whether an answer fits its question is found out when the body takes it.
        """
        for step_id, answer in answers.items():
            asked = self.pending.pop(step_id, None)
            if asked is not None:
                kind, asked_print = asked
                self.entries[step_id] = Entry(
                    kind, asked_print, answer.value, answer.error, tokens=None, public=True
                )

    def spent(self) -> dict[str, int]:
        """Return tokens by path: each recorded entry counts for every path that encloses it."""
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
        private: list[Any] = []
        public: list[Any] = []
        for step_id, entry in self.entries.items():
            row = [step_id, entry.kind, entry.fingerprint, entry.value, entry.tokens, entry.error]
            while row[-1] is None:
                row.pop()
            (public if entry.public else private).append(row)
        owed = [[o.step_id, o.undo, o.step, o.value, o.folded] for o in self.owed]
        head = [FORMAT, self.call_id, self.started, self.rounds, private, owed]
        tail = [[[key, *asked] for key, asked in self.pending.items()], public]
        state = [*head, self.delivered, self.deadlines, self.progressed]
        packed = base64.b64encode(zlib.compress(_dumps(tail).encode(), 9, -15)).decode()
        return f"{packed} {_dumps(state)}"

    @classmethod
    def loads(cls, text: str) -> Journal:
        """Read the text form. The caller vouches that it is one (states are sealed).

        Raises:
            ValueError: it is not, or was written by another version of the format.
        """
        packed, _, state = text.partition(" ")
        version, *fields = json.loads(state)
        if version != FORMAT:
            raise ValueError(f"journal format {version}, this release reads {FORMAT}")
        call_id, started, rounds, private, owed, delivered, deadlines, progressed = fields
        pending, public = json.loads(zlib.decompress(base64.b64decode(packed), -15))
        journal = cls(call_id, started, rounds, delivered=delivered, deadlines=deadlines)
        journal.progressed = progressed
        journal.owed = [Owed(*row) for row in owed]
        journal.pending = {key: (kind, asked) for key, kind, asked in pending}
        for rows, is_public in ((private, False), (public, True)):
            for row in rows:
                step_id, kind, asked, value, tokens, error = (*row, *[None] * (6 - len(row)))
                journal.entries[step_id] = Entry(kind, asked, value, error, tokens, is_public)
        return journal


_dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
canonical: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""JSON with one spelling for equal values. ASCII, so that lone surrogates do not raise."""


_PLAIN = frozenset({str, int, bool, type(None)})


def fingerprint(*parts: JsonValue) -> str:
    """Return six characters that pin what was asked: 36 bits of BLAKE2b.

    Against accident, not against attack: a journal is sealed.
    """
    # Most parts are texts and numbers, for which ascii() is as canonical as JSON, and quicker.
    spelled = ascii(parts) if _PLAIN.issuperset(map(type, parts)) else canonical(parts)
    return binascii.b2a_base64(blake2b(spelled.encode()).digest()[:5])[:6].decode()
