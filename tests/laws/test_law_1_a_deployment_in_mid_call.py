"""Law 1 with a deployment in the middle of a call: the call still has one of the two expected results.

Generated programs ask, run steps and call ``ctx.patched``, also in concurrent branches. From some
round on, the call runs as changed code: with markers, and with other words for every unanswered
question. The call refuses answers to the old words. No call ends in drift, no effect happens twice,
and all markers of a call agree.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.messages import ElicitRequest
from anabranch.rounds import Asked, Rounds
from anabranch.tool import Tool
from tests.durable.stores import Modelled
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet")

Statement: TypeAlias = tuple[Any, ...]
"""``("ask",)``, ``("step",)``, ``("branch", block)``, ``("gather", block, block)``, ``("marked", old, new)``."""
Block: TypeAlias = tuple[Statement, ...]

KEY = "a key of the tests, which is long enough"
LEAVES = st.sampled_from([("ask",), ("ask",), ("step",)])


def _larger(inner: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
    block = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.tuples(st.just("branch"), block),
        st.tuples(st.just("gather"), block, block),
        st.tuples(st.just("marked"), block, block),
    )


STATEMENTS: st.SearchStrategy[Statement] = st.recursive(LEAVES, _larger, max_leaves=8)
PROGRAMS: st.SearchStrategy[Block] = st.lists(STATEMENTS, min_size=2, max_size=4).map(tuple)


class Heard(BaseModel):
    words: str


class World:
    """A program, its recorded effects, and the version of the code that runs."""

    def __init__(self, program: Block) -> None:
        self.program = program
        self.is_new = False
        self.pinned: set[str] = set()
        self.effects: list[str] = []
        self.ways: set[bool] = set()
        self.taken: dict[str, bool] = {}

    def words(self, place: str) -> str:
        """Return a question's text; a deployment changes only the text of unanswered questions."""
        return f"{'new' if self.is_new and place not in self.pinned else 'old'} {place}"

    def tool(self) -> Tool[list[Any]]:
        @tool
        async def program(ctx: BranchContext) -> list[Any]:
            return await self._run(ctx, self.program, "p")

        return program

    async def _run(self, ctx: BranchContext, block: Block, at: str) -> list[Any]:
        return [await self._do(ctx, each, f"{at}.{n}") for n, each in enumerate(block)]

    async def _do(self, ctx: BranchContext, statement: Statement, at: str) -> Any:
        async def inside(branch: BranchContext, number: int) -> list[Any]:
            return await self._run(branch, statement[number], f"{at}-{number}")

        match statement[0]:
            case "ask":
                answer = await ctx.elicit(Heard, self.words(at))
                assert isinstance(answer, Accepted)
                assert answer.content.words.startswith(self.words(at))
                return at
            case "step":
                return await ctx.step(self.effect, at)
            case "branch":
                return await ctx.branch(inside, 1)
            case "gather":
                return list(await ctx.gather(ctx.branch(inside, 1), ctx.branch(inside, 2)))
            case _:
                way = self.is_new and await ctx.patched("change")
                self.ways |= {way} if self.is_new else set()
                self.taken[at] = way
                return await inside(ctx, 2 if way else 1)

    def effect(self, at: str) -> str:
        self.effects.append(at)
        return at


def expected(block: Block, at: str, taken: Mapping[str, bool]) -> list[Any]:
    """Return the value of a block in an undisturbed run that took the given ways."""

    def of(statement: Statement, at: str) -> Any:
        inside = [expected(each, f"{at}-{n}", taken) for n, each in enumerate(statement[1:], 1)]
        match statement[0]:
            case "ask" | "step":
                return at
            case "branch":
                return inside[0]
            case "gather":
                return inside
            case _:
                return inside[taken[at]] if at in taken else None

    return [of(each, f"{at}.{n}") for n, each in enumerate(block)]


def steps_of(block: Block, at: str, taken: Mapping[str, bool]) -> Iterator[str]:
    """Yield the places of the steps that run in a block."""
    for number, statement in enumerate(block):
        place = f"{at}.{number}"
        if statement[0] == "step":
            yield place
        for n, inner in enumerate(statement[1:], 1):
            if statement[0] != "marked" or n == 1 + taken[place]:
                yield from steps_of(inner, f"{place}-{n}", taken)


@pytest.mark.parametrize("stored", [False, True], ids=["sealed", "stored"])
@given(program=PROGRAMS, deployed=st.integers(0, 4), data=st.data())
@examples(200, gate=40)
async def test_a_deployment_changes_only_words_and_ways(
    program: Block, deployed: int, data: st.DataObject, stored: bool
) -> None:
    world, store = World(program), Modelled() if stored else None
    shown: Asked | None = None
    answers: dict[str, Any] = {}
    places: dict[str, str] = {}
    for number in range(200):
        if number == deployed:
            world.is_new = True
        version = "new" if world.is_new else "old"
        rounds = Rounds(keys=[KEY], store=store, code_version=version)
        state = None if shown is None else shown.state
        ended = await rounds.run(world.tool(), {}, state=state, answers=answers)
        if not world.is_new:
            world.pinned |= {places[step_id] for step_id in answers}
        if not isinstance(ended, Asked):
            break
        shown = ended
        for question in ended.questions:
            assert isinstance(question.request, ElicitRequest)
            places[question.id] = question.request.message.splitlines()[0].split(" ")[1]
        some = st.lists(st.sampled_from(ended.questions), min_size=1, unique_by=lambda q: q.id)
        answers = {
            each.id: {"action": "accept", "content": {"words": each.message}}
            for each in data.draw(some)
        }
    else:
        raise AssertionError("the call does not end")
    assert len(world.ways) <= 1
    assert ended.value == expected(program, "p", world.taken)
    assert sorted(world.effects) == sorted(steps_of(program, "p", world.taken))
