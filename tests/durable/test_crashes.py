"""The process dies or the client leaves at any moment of any round; then the client repeats the request.

Generated programs have branches, gathers, undos, deadlines and every kind of answer. Each program
runs once undisturbed and once disturbed, with another server taking over. Both runs must have the
same outcome, and every effect happens once, under one key. One exception cannot be avoided: if the
store never received the record of an effect, the effect happens again under the same key.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import Limits
from tests.durable.plays import Play, assert_the_same, undisturbed
from tests.durable.stores import Cut, Interrupting, Modelled
from tests.laws import programs as language
from tests.laws.programs import Ask, Attempt, Block, Branch, Wait
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet")
WHERE = st.floats(0, 1, exclude_max=True)


async def check_cut(
    program: Block, where: float, *, after: bool, limits: Limits | None = None
) -> None:
    calm, asked = await undisturbed(program, limits)
    behind = Modelled()
    dying = Cut(behind, int(where * len(asked)), after=after)
    seen = await Play(program, limits).over(dying, behind)
    assert_the_same(seen, calm, gap=dying.cut_off == "record" and not after)


@examples(20, gate=10)
@given(language.small_programs)
async def test_a_store_does_not_change_the_work_of_a_tool(program: Block) -> None:
    with_store, _ = await undisturbed(program)
    without = await Play(program).over(None)
    assert_the_same(with_store, without, gap=False)


@examples(20, gate=10)
@given(language.small_programs, WHERE, st.booleans())
async def test_a_call_survives_the_death_of_its_server(
    program: Block, where: float, after: bool
) -> None:
    await check_cut(program, where, after=after)


@examples(20, gate=10)
@given(language.slow_programs, WHERE)
async def test_deadlines_survive_the_death_of_a_server(program: Block, where: float) -> None:
    await check_cut(program, where, after=True, limits=Limits(timeout=60))


async def test_a_branch_keeps_its_deadline_after_a_crash() -> None:
    """The branch started in the round that dies; only its recorded entries remain of this round."""
    branch = Branch((Wait(1), Wait(1)), inherit=False, limits=Limits(timeout=2))
    program = Attempt((branch,)), Ask("accept")
    calm, asked = await undisturbed(program)
    assert calm.outcome[1][0][0] == "BranchTimeoutError"
    for at in range(len(asked)):
        behind = Modelled()
        seen = await Play(program).over(Cut(behind, at, after=True), behind)
        assert_the_same(seen, calm, gap=False)


@examples(20, gate=10)
@given(language.small_programs, WHERE)
async def test_a_request_cancelled_at_the_store_continues_when_repeated(
    program: Block, where: float
) -> None:
    calm, asked = await undisturbed(program)
    behind = Modelled()
    play = Play(program)
    store = Interrupting(behind, int(where * len(asked)))
    playing = asyncio.ensure_future(play.over(store, behind))
    store.request = playing
    seen = await playing
    assert_the_same(seen, calm, gap=False)


@examples(20, gate=10)
@given(language.small_programs, st.integers(1, 60))
async def test_a_request_cancelled_anywhere_continues_when_repeated(
    program: Block, ticks: int
) -> None:
    calm, _ = await undisturbed(program)
    store = Modelled()
    playing = asyncio.ensure_future(Play(program).over(store, store))
    for _ in range(ticks):
        await asyncio.sleep(0)
    if not playing.done():
        playing.cancel()
    seen = await playing
    assert_the_same(seen, calm, gap=False)
