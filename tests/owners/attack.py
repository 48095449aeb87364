"""What one person can find out of another's, or change: every operation, driven with the other's ids.

An id of another person must be answered as one that was never used, and no answer may have a word of
what they wrote, or an id of theirs. The gate tries each operation and each of its parameters once, with
the id that belongs there; the long run tries each form of an operation with ids of every kind.
"""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from tests.owners.people import (
    Answer,
    Parameter,
    Person,
    Surface,
    Use,
    first_of,
    leaves,
    never,
    plain,
    renewed,
    replaced,
    with_text,
)
from tests.randomised import LONG, SEED, times

SHOWN = 300
"""Characters of an answer that a finding shows."""


async def use(surface: Surface, person: Person, operation: str, given: Mapping[str, Any]) -> Answer:
    """Let a person use an operation, and record it."""
    sent = renewed(given)
    answer = await surface.do(person, operation, sent)
    person.uses.append(Use(operation, sent, answer))
    return answer


async def use_the_rest(
    surface: Surface, person: Person, story: str, *, beside: Collection[str] = ()
) -> None:
    """Use what the product has, and ``story`` does not know of; ``beside`` what is always refused."""
    for operation in surface.operations():
        if not person.done(operation) and operation not in beside:
            answer = await use(surface, person, operation, surface.sample(person, operation))
            assert answer.is_done, (
                f"{operation} is new here, and what it takes could not be guessed: it answers"
                f" {answer.whole!r}. Let {story} use it, so that it is driven with the ids of others."
            )


BYTES = ("source", "value")
"""The end of the place of a file's bytes, which no id can be: the answer tells the kind of the file."""


class Attack:
    """What ``other`` does with the ids of ``owner``."""

    def __init__(
        self, surface: Surface, owner: Person, other: Person, ids: Mapping[str, Sequence[str]]
    ) -> None:
        self.found: list[str] = []
        self._surface = surface
        self._owner = owner
        self._other = other
        self._kinds = list(ids.values())
        self._every = {each for kind in self._kinds for each in kind}
        self._random = Random(SEED)
        self._sent: set[str] = set()
        self._later: list[tuple[str, Mapping[str, Any], Parameter]] = []

    async def run(self, only: Collection[str] = (), *, as_used: Collection[str] = ()) -> list[str]:
        """Drive every operation, or some; return what was found.

        Those of ``as_used`` are done as each of the two has done them, and with no other ids.
        What takes any text is done last, since it may be a name: then there is something of that name.
        """
        every = self._surface.operations()
        operations = {name: known for name, known in every.items() if not only or name in only}
        for operation in operations:
            own: list[Mapping[str, Any]]
            own = [each.given for each in first_of(self._other.done(operation))]
            for given in own or [{}]:
                self._look(operation, await self._do(operation, given), "as before")
        for operation, known in operations.items():
            if operation not in as_used:
                await self._with_each_id(operation, known)
            for theirs in first_of(self._owner.done(operation)):
                await self._as_the_owner(theirs)
        for operation, given, place in self._later:
            for name in self._some(operation, place):
                await self._compare_as_strangers(operation, given, place, name)
        return self.found

    async def _do(
        self, operation: str, given: Mapping[str, Any], person: Person | None = None
    ) -> Answer:
        return await self._surface.do(person or self._other, operation, renewed(given))

    def _stranger(self) -> Person:
        """Somebody who has done nothing before."""
        return Person(f"stranger {self._random.random()}", self._other.word)

    async def _with_each_id(self, operation: str, known: Sequence[Parameter]) -> None:
        """Put ids of the owner into one parameter after the other; the rest is the other's own."""
        own = [each.given for each in first_of(self._other.done(operation))]
        tried: set[Parameter] = set()
        for given in own or [{}]:
            for place in dict.fromkeys([*(place for place, _ in leaves(given)), *known]):
                if place[-2:] != BYTES and (LONG or place not in tried):
                    tried.add(place)
                    await self._with_ids_at(operation, given, place)

    async def _with_ids_at(
        self, operation: str, given: Mapping[str, Any], place: Parameter
    ) -> None:
        """Compare ids of the owner there; where any text is accepted, leave that for later."""
        for name in self._ids_at(operation, place):
            unknown = never(name, self._random)
            nowhere = await self._do(operation, with_text(given, place, unknown))
            if nowhere.is_done:
                self._later.append((operation, given, place))
                return
            there = await self._do(operation, with_text(given, place, name))
            self._compare(operation, place, (there, name), (nowhere, unknown))

    def _ids_at(self, operation: str, place: Parameter) -> list[str]:
        """Return the id that the owner has given there, if any; else, and in the long run, some of each kind."""
        own = self._owns_at(operation, place)
        return own if own and not LONG else list(dict.fromkeys([*own, *self._chosen()]))

    def _owns_at(self, operation: str, place: Parameter) -> list[str]:
        """Return the first id that the owner has given there, if any, be it refused."""
        uses = [use for use in self._owner.uses if use.operation == operation]
        given = (leaf for use in uses for leaf in leaves(use.given))
        return [text for at, text in given if at == place and text in self._every][:1]

    def _chosen(self) -> list[str]:
        """Return some ids of each kind, others each time."""
        some = times(1)
        return [
            each for kind in self._kinds for each in self._random.sample(kind, min(len(kind), some))
        ]

    def _some(self, operation: str, place: Parameter) -> list[str]:
        """Return the id that the owner has given there, and some others; in the gate one."""
        own, chosen = self._owns_at(operation, place), self._chosen()
        others = self._random.sample(chosen, min(len(chosen), times(2, gate=1)))
        return list(dict.fromkeys([*own, *others]))[: None if LONG else 1]

    async def _compare_as_strangers(
        self, operation: str, given: Mapping[str, Any], place: Parameter, name: str
    ) -> None:
        """Compare as two who have done nothing before, if that needs nothing of the other's own."""
        unknown, one, another = never(name, self._random), self._stranger(), self._stranger()
        nowhere = await self._do(operation, with_text(given, place, unknown), another)
        if not nowhere.is_done:
            one = self._other
            nowhere = await self._do(operation, with_text(given, place, unknown))
        there = await self._do(operation, with_text(given, place, name), one)
        self._compare(operation, place, (there, name), (nowhere, unknown))

    def _compare(
        self,
        operation: str,
        place: Parameter,
        there: tuple[Answer, str],
        nowhere: tuple[Answer, str],
    ) -> None:
        """Compare the answer to an id of the owner with that to one that was never used."""
        (answer, name), (other, unknown) = there, nowhere
        where = f"with {name} as {'.'.join(map(str, place))}"
        self._differ(operation, where, (answer, [name]), (other, [unknown]))
        self._look(operation, answer, where, [name])

    async def _as_the_owner(self, theirs: Use) -> None:
        """Do what the owner has done, as one who has done nothing before."""
        given = replaced(theirs.given, {self._owner.word: self._other.word})
        used = {each for _, text in leaves(given) for each in self._every if each in text}
        texts = {each: never(each, self._random) for each in used}
        there = await self._do(theirs.operation, given, self._stranger())
        nowhere = await self._do(theirs.operation, replaced(given, texts), self._stranger())
        where = f"with {', '.join(sorted(texts)) or 'no id'}, as {self._owner.name} has sent it,"
        self._differ(theirs.operation, where, (there, [*texts]), (nowhere, [*texts.values()]))
        self._look(theirs.operation, there, where, used)

    def _differ(
        self,
        operation: str,
        where: str,
        there: tuple[Answer, Sequence[str]],
        nowhere: tuple[Answer, Sequence[str]],
    ) -> None:
        shown = [plain(answer.whole, sent) for answer, sent in (there, nowhere)]
        if shown[0] != shown[1]:
            self.found.append(
                f"{operation} {where} answers {_differing(*shown)} to an id that was never used:"
                " so it is seen that this one exists"
            )

    def _look(self, operation: str, answer: Answer, where: str, sent: Collection[str] = ()) -> None:
        """Look for what is the owner's, and was not sent by the other."""
        for each in (self._owner.word, *self._every):
            if each in answer.whole and not any(each in name for name in (*sent, *self._sent)):
                around, whose = _around(answer.whole, each), self._owner.name
                self.found.append(f"{operation} {where} shows {each!r} of {whose}: {around!r}")
                return
        if answer.is_done:
            self._sent.update(sent)


def _around(text: str, word: str) -> str:
    at = text.index(word)
    return text[max(0, at - SHOWN // 2) : at + SHOWN // 2]


def _differing(one: str, other: str) -> str:
    """The first place where two texts differ, in both."""
    same = next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0
    )
    first = max(0, same - 60)
    return f"{one[first : first + SHOWN]!r}, and {other[first : first + SHOWN]!r}"
