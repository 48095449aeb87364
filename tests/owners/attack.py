"""Attacks one user's data as another user: runs every operation with the other user's ids.

The product must answer an id of another user like an id that was never used. No answer may contain
a word that the other user wrote, or one of the other user's ids. The gate tries each operation and
parameter once, with the matching id. The long run tries each form of an operation with ids of every
kind.
"""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from tests.owners.users import (
    Answer,
    Parameter,
    Surface,
    Use,
    User,
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
"""Maximum characters of an answer that a finding shows."""


async def use(surface: Surface, user: User, operation: str, given: Mapping[str, Any]) -> Answer:
    """Let a user perform an operation, and record the use."""
    sent = renewed(given)
    answer = await surface.do(user, operation, sent)
    user.uses.append(Use(operation, sent, answer))
    return answer


async def use_the_rest(
    surface: Surface, user: User, story: str, *, beside: Collection[str] = ()
) -> None:
    """Use the operations that ``story`` does not use, except ``beside``, which are always refused."""
    for operation in surface.operations():
        if not user.done(operation) and operation not in beside:
            answer = await use(surface, user, operation, surface.sample(user, operation))
            assert answer.is_done, (
                f"{operation} is new here, and what it takes could not be guessed: it answers"
                f" {answer.whole!r}. Let {story} use it, so that it is driven with the ids of others."
            )


BYTES = ("source", "value")
"""The last keys of the place of a file's bytes. The bytes cannot be an id: the answer tells the file's type."""


class Attack:
    """Attacks the data of ``owner`` as ``other``."""

    def __init__(
        self, surface: Surface, owner: User, other: User, ids: Mapping[str, Sequence[str]]
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
        """Attack by every operation, or by ``only`` some; return the findings.

        Operations in ``as_used`` run only as each of the two users ran them, without foreign ids.
        Parameters that accept any text come last: the text may be a name, and then the operation
        creates an object of that name.
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
        self, operation: str, given: Mapping[str, Any], user: User | None = None
    ) -> Answer:
        return await self._surface.do(user or self._other, operation, renewed(given))

    def _stranger(self) -> User:
        """Return a user without any earlier use."""
        return User(f"stranger {self._random.random()}", self._other.word)

    async def _with_each_id(self, operation: str, known: Sequence[Parameter]) -> None:
        """Put ids of the owner into one parameter after the other; the other arguments are the attacker's."""
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
        """Compare the answers to ids of the owner at ``place``; postpone parameters that accept any text."""
        for name in self._ids_at(operation, place):
            unknown = never(name, self._random)
            nowhere = await self._do(operation, with_text(given, place, unknown))
            if nowhere.is_done:
                self._later.append((operation, given, place))
                return
            there = await self._do(operation, with_text(given, place, name))
            self._compare(operation, place, (there, name), (nowhere, unknown))

    def _ids_at(self, operation: str, place: Parameter) -> list[str]:
        """Return the id that the owner used there, if any; otherwise, or in the long run, ids of each kind."""
        own = self._owns_at(operation, place)
        return own if own and not LONG else list(dict.fromkeys([*own, *self._chosen()]))

    def _owns_at(self, operation: str, place: Parameter) -> list[str]:
        """Return the first id that the owner used there, even in a refused use."""
        uses = [use for use in self._owner.uses if use.operation == operation]
        given = (leaf for use in uses for leaf in leaves(use.given))
        return [text for at, text in given if at == place and text in self._every][:1]

    def _chosen(self) -> list[str]:
        """Return some ids of each kind, different ones each time."""
        some = times(1)
        return [
            each for kind in self._kinds for each in self._random.sample(kind, min(len(kind), some))
        ]

    def _some(self, operation: str, place: Parameter) -> list[str]:
        """Return the id that the owner used there, and some others; in the gate, only one id."""
        own, chosen = self._owns_at(operation, place), self._chosen()
        others = self._random.sample(chosen, min(len(chosen), times(2, gate=1)))
        return list(dict.fromkeys([*own, *others]))[: None if LONG else 1]

    async def _compare_as_strangers(
        self, operation: str, given: Mapping[str, Any], place: Parameter, name: str
    ) -> None:
        """Compare the answers to two new users, if the operation needs no other ids of the attacker."""
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
        """Compare the answer to an id of the owner with the answer to an id that was never used."""
        (answer, name), (other, unknown) = there, nowhere
        where = f"with {name} as {'.'.join(map(str, place))}"
        self._differ(operation, where, (answer, [name]), (other, [unknown]))
        self._look(operation, answer, where, [name])

    async def _as_the_owner(self, theirs: Use) -> None:
        """Repeat a use of the owner as a new user."""
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
        """Report the owner's data in an answer, except texts that the other user sent."""
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
    """Return the first place at which two texts differ, in both."""
    same = next(
        (n for n, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), 0
    )
    first = max(0, same - 60)
    return f"{one[first : first + SHOWN]!r}, and {other[first : first + SHOWN]!r}"
