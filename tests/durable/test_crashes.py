"""The process dies, or the client leaves, at any moment of any round; then the request is repeated.

Generated programs with branches, gathers, undos, deadlines and every kind of answer are run once
undisturbed and once disturbed, with another server taking over. Both must come to the same end,
and every effect happens once, under one key. The exception is the gap that nothing can close: an
effect whose record the store never got happens again, under the same key.
``ANABRANCH_EXAMPLES`` multiplies the numbers.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from anabranch import Limits
from anabranch._durable.policy import Durability
from anabranch._durable.store import CallStore
from anabranch.messages import SampleRequest
from tests.durable.harness import Desk, Ledger
from tests.durable.stores import Cut, Interrupting, Modelled, Watched
from tests.laws import programs as language
from tests.laws.programs import Block, World, as_tool, enter
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet")
WHERE = st.floats(0, 1, exclude_max=True)


@dataclass
class Seen:
    """What a call came to."""

    outcome: tuple[str, Any]
    effects: Ledger

    def by_lane(self) -> dict[str, list[str]]:
        lanes: dict[str, list[str]] = defaultdict(list)
        for lane, what in self.effects:
            lanes[lane].append(what)
        return dict(lanes)


def patiently(store: CallStore) -> Durability:
    """Leases that last while a program lets time pass."""
    return Durability(store, lease=10_000, expire_after=100_000)


class Play:
    """One program, and the person who answers it."""

    def __init__(self, program: Block, limits: Limits | None = None) -> None:
        self.world = World(effects=Ledger())
        enter(self.world)
        self.desk = Desk(as_tool(program, limits), self.person, patiently, clock=self.world.clock)

    def person(self, step_id: str, request: Any) -> BaseModel:
        params = request.params
        if isinstance(request, types.CreateMessageRequest):
            return self.reply(params)
        if params.message.startswith("slow "):
            self.world.clock.advance(int(params.message.split(" ")[1]))
        action, content = language.person(params.message)
        return types.ElicitResult.model_validate({"action": action, "content": content})

    def reply(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResultWithTools:
        wire = params.model_dump(by_alias=True, mode="json", exclude={"tool_choice"})
        content = language.model(SampleRequest.model_validate(wire))
        return types.CreateMessageResultWithTools.model_validate(
            {"role": "assistant", "content": content, "model": "m"}
        )

    async def over(self, *stores: CallStore | None) -> Seen:
        outcome = await self.desk.play(*stores)
        assert isinstance(self.world.effects, Ledger)
        return Seen(outcome, self.world.effects)


async def undisturbed(program: Block, limits: Limits | None = None) -> tuple[Seen, list[str]]:
    store = Watched(Modelled())
    seen = await Play(program, limits).over(store)
    asked = list(store.asked)
    return seen, asked


def assert_the_same(seen: Seen, calm: Seen, *, gap: bool) -> None:
    assert seen.outcome == calm.outcome
    assert seen.effects.by_key() == calm.effects.by_key()
    assert not Counter(calm.effects) - Counter(seen.effects)
    if not gap:
        assert seen.by_lane() == calm.by_lane()


async def check_cut(
    program: Block, where: float, *, after: bool, limits: Limits | None = None
) -> None:
    calm, asked = await undisturbed(program, limits)
    behind = Modelled()
    dying = Cut(behind, int(where * len(asked)), after=after)
    seen = await Play(program, limits).over(dying, behind)
    assert_the_same(seen, calm, gap=dying.cut_off == "record" and not after)


@examples(20)
@given(language.small_programs)
async def test_a_store_changes_nothing_in_what_a_tool_does(program: Block) -> None:
    with_store, _ = await undisturbed(program)
    without = await Play(program).over(None)
    assert_the_same(with_store, without, gap=False)


@examples(20)
@given(language.small_programs, WHERE, st.booleans())
async def test_a_call_survives_the_death_of_its_server(
    program: Block, where: float, after: bool
) -> None:
    await check_cut(program, where, after=after)


@examples(20)
@given(language.slow_programs, WHERE)
async def test_deadlines_survive_the_death_of_a_server(program: Block, where: float) -> None:
    await check_cut(program, where, after=True, limits=Limits(timeout=60))


@examples(20)
@given(language.small_programs, WHERE)
async def test_a_request_that_is_cancelled_at_the_store_is_taken_up_when_repeated(
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


@examples(20)
@given(language.small_programs, st.integers(1, 60))
async def test_a_request_that_is_cancelled_anywhere_is_taken_up_when_repeated(
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
