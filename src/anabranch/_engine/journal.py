"""What has happened in a call: enough to replay it elsewhere.

Owns entries, the questions that are open, and their text form between rounds. It never runs
anything and never decides whether an entry fits a replay: ``machine.py`` does.

The text form keeps two parts apart. What the client itself sent or was shown (the names of its
questions and its answers) is deflated; what only the server knows (values of steps and of folded
branches) is not. Compressing both together would let a client learn the server's secrets from the
length of the sealed state, by answering with guesses (the CRIME attack).
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, cast

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from anabranch.messages import LogLevel

__all__ = [
    "Answer",
    "Ask",
    "AskKind",
    "Entry",
    "Journal",
    "Notice",
    "Owed",
    "canonical",
    "fingerprint",
]

FORMAT = 1
PRINT = 6
"""Length of a fingerprint."""

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


class Ask(NamedTuple):
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


_DICT = cast("Callable[[], Any]", dict)
_LIST = cast("Callable[[], Any]", list)
"""Not ``list[Owed]``, which type checkers like better: calling that takes far longer."""


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
        fork: which line of this call it is; empty for the first. Another begins where a round
            that had been answered was answered differently.
    """

    call_id: str
    started: float
    rounds: int = 0
    entries: dict[str, Entry] = field(default_factory=_DICT)
    pending: dict[str, tuple[str, str]] = field(default_factory=_DICT)
    delivered: dict[str, int] = field(default_factory=_DICT)
    deadlines: dict[str, float | None] = field(default_factory=_DICT)
    owed: list[Owed] = field(default_factory=_LIST)
    progressed: int = 0
    fork: str = ""

    @property
    def line(self) -> str:
        """The name of this line of the call: under it effects are done, and kept."""
        return self.call_id + self.fork

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

    def fold(self, step_ids: Collection[str]) -> None:
        """Drop these entries; undos that they owe take their values over."""
        for owed in self.owed:
            if owed.step_id in step_ids and not owed.folded:
                owed.value = self.entries[owed.step_id].value
                owed.folded = True
        for step_id in step_ids:
            self.entries.pop(step_id, None)

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
        prints = [asked for _, asked in self.pending.values()]
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
                private.append([entry.fingerprint, *row])
        owed = [[o.step_id, o.undo, o.step, o.value, o.folded] for o in self.owed]
        head = [FORMAT, self.call_id, self.started, self.rounds, _joined(prints), private, owed]
        state = [*head, self.delivered, self.deadlines, self.progressed, self.fork]
        while not state[-1]:
            state.pop()
        asked = [[step_id, kind] for step_id, (kind, _) in self.pending.items()]
        return f"{_deflated(_written([asked, public]))} {_written(state).decode('ascii')}"

    @classmethod
    def loads(cls, text: str) -> Journal:
        """Read the text form. The caller vouches that it is one (states are sealed).

        Raises:
            ValueError: it is not, or was written by another version of the format.
        """
        packed, _, state = text.partition(" ")
        try:
            version, *fields = _loaded(state)
            if version != FORMAT:
                raise ValueError(f"journal format {version}, this release reads {FORMAT}")
            return cls._read(fields, *_loaded(_inflated(packed)))
        except (TypeError, zlib.error) as problem:
            raise ValueError(f"not the text of a journal: {problem}") from problem

    @classmethod
    def _read(cls, fields: list[Any], pending: list[Any], public: list[Any]) -> Journal:
        padded = [*fields, *_EMPTY[len(fields) :]]
        call_id, started, rounds, joined, private, owed, delivered, deadlines, *rest = padded
        journal = cls(
            call_id, started, rounds, delivered=dict(delivered), deadlines=dict(deadlines)
        )
        journal.progressed, journal.fork = rest
        journal.owed = [Owed(*row) for row in owed]
        prints = _apart(joined)
        for asked, (step_id, kind) in zip(prints, pending, strict=False):
            journal.pending[step_id] = (kind, asked)
        for asked, *row in private:
            journal._add(asked, row, public=False)
        for asked, row in zip(prints[len(pending) :], public, strict=True):
            journal._add(asked, row, public=True)
        return journal

    def _add(self, asked: str, row: list[Any], *, public: bool) -> None:
        step_id, kind, value, *rest = row
        tokens = rest[0] if rest else None if public else 0
        error = rest[1] if len(rest) > 1 else None
        self.entries[step_id] = Entry(kind, asked, value, error, tokens, public)


_EMPTY: list[Any] = ["", 0, 0, "", (), (), (), (), 0, ""]
"""What a journal's fields are when they are left out at the end."""


def _joined(prints: list[str]) -> str | list[str]:
    """Return the fingerprints as one text: beside the compressed part, for they are noise."""
    return "".join(prints) if all(len(one) == PRINT for one in prints) else prints


def _apart(joined: str | list[str]) -> list[str]:
    if isinstance(joined, list):
        return joined
    return [joined[start : start + PRINT] for start in range(0, len(joined), PRINT)]


_USUAL = (
    b'"cancel""decline""sample"{"role":"assistant","content":[{"type":"text","text":""}],"model":""'
    b',"stop_reason":"endTurn"}]]["/elicit.1","elicit",{"action":"accept","content":{"'
)
"""What deflate may take as said already; part of the format."""


_SMALL = 4096


def _deflated(text: bytes) -> str:
    # A small state is not worth the memory that would have to be cleared for a big one.
    memory = 4 if len(text) < _SMALL else 9
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15, memory, zdict=_USUAL)
    return base64.b64encode(deflate.compress(text) + deflate.flush()).decode()


def _inflated(packed: str) -> bytes:
    return zlib.decompressobj(-15, zdict=_USUAL).decompress(base64.b64decode(packed))


def _written(value: object) -> bytes:
    """Return ``value`` as JSON in ASCII, so that any transport takes it."""
    try:
        text = to_json(value)
    except ValueError:  # nested deeply, or half of a surrogate pair: rare, and no reason to fail
        text = b""
    return text if text and text.isascii() else _dumps(value).encode()


def _loaded(text: str | bytes) -> Any:  # noqa: ANN401 - whatever was written
    try:
        return from_json(text)
    except ValueError:  # as above
        return json.loads(text)


_dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
canonical: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""JSON with one spelling for equal values. ASCII, so that lone surrogates do not raise."""


_PLAIN = frozenset({str, int, bool, type(None)})


def fingerprint(*parts: JsonValue) -> str:
    """Return ``PRINT`` characters that pin what was asked: 36 bits of BLAKE2b.

    Against accident, not against attack: a journal is sealed.
    """
    # Most parts are texts and numbers, for which ascii() is as canonical as JSON, and quicker.
    for part in parts:
        if type(part) not in _PLAIN:
            spelled = canonical(parts)
            break
    else:
        spelled = ascii(parts)
    return binascii.b2a_base64(blake2b(spelled.encode()).digest()[:5])[:PRINT].decode()
