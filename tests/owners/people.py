"""A person who uses a surface: what they sent and received, the ids in it, and ids that were never used.

A *surface* is a set of operations: the routes of an application, the tools of a server, the commands of
the command line. What an operation is given is JSON; its texts are its parameters.
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
"""Where a text is in what an operation is given."""

CODE = re.compile(r"[A-Z]{3,}[0-9]{3}")
"""The code of an error, which anybody may read."""
FRESH = re.compile(r"\bfresh-[a-z]+-\d+\b")
TOKEN = re.compile(r"[\w@~:.+=/-]{8,}")
QUOTED = 100
"""Characters of a long name that a refusal repeats."""
PUNCTUATION = ".:=/+"
"""Characters around an id that are not a part of it; an id may end with a hyphen."""
KIND = re.compile(r"[a-z]{1,7}[_-]|v1\.")
TIMES = re.compile(r"\b\d{9,10}(\.\d+)?\b|\b\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?")
GUESS = re.compile(r" Did you mean [^?]*\?")
"""A word that looks like what was given, which is not repeated for an id that looks like none."""
MADE = (
    TIMES,
    FRESH,
    re.compile(r"\b(node|thread|run|call|br|fs|mem)_[\w-]{8,}"),
    re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    re.compile(r"(?<![\w-])[\w-]{80,}(?![\w-])"),  # what is sealed
    re.compile(r"^id: \d+-[0-9a-f]+$", re.MULTILINE),
    re.compile(r'"position":\s*"\d+-[0-9a-f]+"'),
    re.compile(r'\w*(budget|tokens_used)\w*\\?":\s*\d+'),
)
"""What differs between two answers that say the same: ids, times, numbers of events, what is used up."""

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation has answered; ``is_done`` is false for a refusal.

    ``head`` is what comes beside the text, such as a status.
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
class Person:
    """Somebody who uses a surface.

    Attributes:
        name: how a surface knows them; ``None`` where it does not distinguish people.
        word: is in every text that they write, and in nothing else.
        uses: what they have done.
    """

    name: str | None
    word: str
    uses: list[Use] = field(default_factory=list[Use])

    def done(self, operation: str) -> list[Use]:
        """What they have done with an operation, and was not refused."""
        return [use for use in self.uses if use.operation == operation and use.answer.is_done]

    def text(self, about: str) -> str:
        """A text that only they write, about something that others write about, too."""
        return f"{about} {self.word}"

    def new(self, kind: str) -> str:
        """An id of their own choice."""
        return f"{kind}-{self.word[::-1]}{next(_numbers):03}"

    def fresh(self, kind: str) -> str:
        """An id that must be another one each time that the same is done again."""
        return f"fresh-{kind}-{next(_numbers)}"


class Surface(Protocol):
    """Operations that several people may use."""

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """All operations, as the product itself lists them, and those of their parameters that are known."""
        ...

    def sample(self, person: Person, operation: str) -> dict[str, Any]:
        """Something that ``person`` may give an operation that they have not used yet."""
        ...

    async def do(self, person: Person, operation: str, given: dict[str, Any]) -> Answer:
        """Let ``person`` use an operation; it is not recorded."""
        ...


def leaves(data: object, at: Parameter = ()) -> Iterator[tuple[Parameter, str]]:
    """Every text in JSON, and where it is; JSON that is a text in it is read, too, at the same place."""
    if isinstance(data, Mapping):
        for name, value in cast("Mapping[str, object]", data).items():
            yield from leaves(value, (*at, name))
    elif isinstance(data, list):
        for number, value in enumerate(cast("list[object]", data)):
            yield from leaves(value, (*at, number))
    elif isinstance(data, str):
        yield at, data


def with_text(given: Mapping[str, Any], parameter: Parameter, text: str) -> dict[str, Any]:
    """A copy of ``given`` with another text at ``parameter``, which may be missing in it."""
    copy: dict[str, Any] = json.loads(json.dumps(given))
    place: Any = copy
    for name in parameter[:-1]:
        if isinstance(name, str):
            place.setdefault(name, {})
        place = place[name]
    place[parameter[-1]] = text
    return copy


def renewed(given: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``given`` in which ids are new that must be."""
    new: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        kind = match[0].split("-")[1]
        return new.setdefault(match[0], f"fresh-{kind}-{next(_numbers)}")

    return cast("dict[str, Any]", json.loads(FRESH.sub(other, json.dumps(given))))


def replaced(given: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """A copy of ``given`` with other texts in place of some."""
    text = json.dumps(given, ensure_ascii=False)
    for one in sorted(texts, key=len, reverse=True):
        text = text.replace(one, texts[one])
    return cast("dict[str, Any]", json.loads(text))


def never(name: str, random: Random) -> str:
    """An id of the same form, which was never used: the number 0 would stand for the beginning."""
    begins = KIND.match(name)
    head = begins[0] if begins else ""
    return head + "".join(_other(letter, random) for letter in name[len(head) :])


def _other(letter: str, random: Random) -> str:
    for letters in (digits[1:], ascii_lowercase, ascii_uppercase):
        if letter in letters:
            return random.choice(letters)
    return letter


def plain(text: str, given: Sequence[str]) -> str:
    """An answer without what was ``given``, and without what is made for each answer."""
    for each in sorted(given, key=len, reverse=True):
        text = text.replace(each, "…").replace(each[:QUOTED], "…")
    text = GUESS.sub("", text)
    for pattern in MADE:
        text = pattern.sub("_", text)
    return text


def _found_in(data: object) -> Iterator[tuple[str, str]]:
    """Every word in JSON that may be an id, and the name of what it is in."""
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
    """The JSON of an answer, which may be server-sent events; else its text."""
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


def ids_of(owner: Person, others: Sequence[Use]) -> dict[str, list[str]]:
    """The ids that the owner's use has produced, by their kinds: what they begin with.

    What was also in the uses of others, before the owner did anything, is no id of the owner's.
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
    """The first use of each form: with the same operation and the same parameters."""
    forms: dict[object, Use] = {}
    for use in uses:
        places = tuple(place for place, _ in leaves(use.given))
        forms.setdefault((use.operation, places), use)
    return list(forms.values())
