"""A user of a surface: the user's uses, the ids in them, and ids that were never used.

A *surface* is a set of operations: the routes of an application, the tools of a server, or the
commands of the command line. The arguments of an operation are JSON, and the texts in that JSON are
its parameters.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, Protocol, TypeAlias, cast

Parameter: TypeAlias = tuple[str | int, ...]
"""The place of a text in the arguments of an operation."""

CODE = re.compile(r"[A-Z]{3,}[0-9]{3}")
"""The code of an error, which any user may read."""
FRESH = re.compile(r"\bfresh-[a-z]+-\d+\b")
TOKEN = re.compile(r"[\w@~:.+=/-]{8,}")
QUOTED = 100
"""Maximum characters of a long name that a refusal repeats."""
PUNCTUATION = ".:=/+"
"""Characters around an id that do not belong to the id; an id may end with a hyphen."""
KIND = re.compile(r"[a-z]{1,7}[_-]|v1\.")
TIMES = re.compile(r"\b\d{9,10}(\.\d+)?\b|\b\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?")
GUESS = re.compile(r" Did you mean [^?]*\?")
"""A suggestion in a refusal: a word similar to the argument, which only some wrong ids get."""
MADE = (
    TIMES,
    FRESH,
    re.compile(r"\b(node|thread|run|call|br|fs|mem)_[\w-]{8,}"),
    re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    re.compile(r"(?<![\w-])[\w-]{80,}(?![\w-])"),  # sealed text
    re.compile(r"^id: \d+-[0-9a-f]+$", re.MULTILINE),
    re.compile(r'"position":\s*"\d+-[0-9a-f]+"'),
    re.compile(r'\w*(budget|tokens_used)\w*\\?":\s*\d+'),
)
"""Parts in which two equivalent answers may differ: ids, times, numbers of events, usage."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an operation; ``is_done`` is false for a refusal.

    ``head`` is the rest of the answer, such as a status.
    """

    is_done: bool
    text: str
    head: str = ""

    @property
    def whole(self) -> str:
        return f"{self.head}\n{self.text}"


@dataclass(frozen=True, slots=True)
class Use:
    operation: str
    given: dict[str, Any]
    answer: Answer


@dataclass(slots=True)
class User:
    """A user of a surface.

    Attributes:
        name: name by which a surface knows the user; ``None`` if the surface does not distinguish users.
        word: a word in every text that this user writes, and in no other text.
        uses: operations that this user has performed.
    """

    name: str | None
    word: str
    uses: list[Use] = field(default_factory=list[Use])

    def done(self, operation: str) -> list[Use]:
        """Return the uses of an operation that were not refused."""
        return [use for use in self.uses if use.operation == operation and use.answer.is_done]

    def text(self, about: str) -> str:
        """Return a text with this user's word, about a subject that other users share."""
        return f"{about} {self.word}"

    def new(self, kind: str) -> str:
        """Return an id that this user chooses."""
        return f"{kind}-{self.word[::-1]}{next(_numbers):03}"

    def fresh(self, kind: str) -> str:
        """Return an id that must be new at each repetition of the same use."""
        return f"fresh-{kind}-{next(_numbers)}"


class Surface(Protocol):
    """Operations that several users may perform."""

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """Return all operations that the product lists, with their known parameters."""
        ...

    def sample(self, user: User, operation: str) -> dict[str, Any]:
        """Return arguments that ``user`` may give to an operation without an earlier use."""
        ...

    async def do(self, user: User, operation: str, given: dict[str, Any]) -> Answer:
        """Let ``user`` perform an operation, without recording the use."""
        ...


def leaves(data: object, at: Parameter = ()) -> Iterator[tuple[Parameter, str]]:
    """Yield every text in JSON with its place; JSON inside a text is read as well, at the same place."""
    if isinstance(data, Mapping):
        for name, value in cast("Mapping[str, object]", data).items():
            yield from leaves(value, (*at, name))
    elif isinstance(data, list):
        for number, value in enumerate(cast("list[object]", data)):
            yield from leaves(value, (*at, number))
    elif isinstance(data, str):
        yield at, data


def with_text(given: Mapping[str, Any], parameter: Parameter, text: str) -> dict[str, Any]:
    """Return a copy of ``given`` with another text at ``parameter``, which may be missing in ``given``."""
    copy: dict[str, Any] = json.loads(json.dumps(given))
    place: Any = copy
    for name in parameter[:-1]:
        if isinstance(name, str):
            place.setdefault(name, {})
        place = place[name]
    place[parameter[-1]] = text
    return copy


def renewed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of ``given`` with new values for ids that must be new."""
    new: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        kind = match[0].split("-")[1]
        return new.setdefault(match[0], f"fresh-{kind}-{next(_numbers)}")

    return cast("dict[str, Any]", json.loads(FRESH.sub(other, json.dumps(given))))


def replaced(given: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of ``given`` with some texts replaced."""
    text = json.dumps(given, ensure_ascii=False)
    for one in sorted(texts, key=len, reverse=True):
        text = text.replace(one, texts[one])
    return cast("dict[str, Any]", json.loads(text))


def never(name: str, random: Random) -> str:
    """Return an id of the same form that was never used; the number 0 would mean the beginning."""
    begins = KIND.match(name)
    head = begins[0] if begins else ""
    return head + "".join(_other(letter, random) for letter in name[len(head) :])


def _other(letter: str, random: Random) -> str:
    for letters in (digits[1:], ascii_lowercase, ascii_uppercase):
        if letter in letters:
            return random.choice(letters)
    return letter


def plain(text: str, given: Sequence[str]) -> str:
    """Return an answer without the texts in ``given`` and the parts that change with each answer."""
    for each in sorted(given, key=len, reverse=True):
        text = text.replace(each, "…").replace(each[:QUOTED], "…")
    text = GUESS.sub("", text)
    for pattern in MADE:
        text = pattern.sub("_", text)
    return text


def _found_in(data: object) -> Iterator[tuple[str, str]]:
    """Yield every word in JSON that may be an id, with the name of the field around it."""
    for place, text in leaves(data):
        with suppress(ValueError):
            inner: object = json.loads(text)
            if isinstance(inner, dict | list):
                yield from _found_in(cast("object", inner))
                continue
        names = [each for each in place if isinstance(each, str)]
        kind = ".".join(names[-2:] if names[-1:] == ["id"] else names[-1:])
        for token in TOKEN.findall(text):
            yield kind, token.strip(PUNCTUATION)


def _data_in(text: str) -> list[Any]:
    """Return the JSON of an answer or of its server-sent events; otherwise, return the text."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    found: list[Any] = []
    for each in lines or [text]:
        try:
            found.append(json.loads(each))
        except ValueError:
            found.append(each)
    return found


def _words_of(uses: Sequence[Use]) -> Iterator[tuple[str, str]]:
    for use in uses:
        yield from _found_in(use.given)
        for data in _data_in(use.answer.text):
            yield from _found_in(data)


def ids_of(owner: User, others: Sequence[Use]) -> dict[str, list[str]]:
    """Return the ids that the owner's uses created, by kind, which is the id's prefix.

    Ids that also occur in other users' uses before the owner's first use do not count.
    """
    seen = {word for _, word in _words_of(others)}
    kinds: dict[str, list[str]] = {}
    for name, word in _words_of(owner.uses):
        if word in seen or owner.word in word or word.isalpha():
            continue
        seen.add(word)
        if not any(each.fullmatch(word) for each in (TIMES, CODE)) and not FRESH.search(word):
            begins = KIND.match(word)
            kinds.setdefault(begins[0] if begins else name, []).append(word)
    return kinds


def first_of(uses: Sequence[Use]) -> list[Use]:
    """Return the first use of each form: the same operation with the same parameters."""
    forms: dict[object, Use] = {}
    for use in uses:
        places = tuple(place for place, _ in leaves(use.given))
        forms.setdefault((use.operation, places), use)
    return list(forms.values())
