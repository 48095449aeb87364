"""States of rounds: their bindings, repeated states, and calls that are given up."""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.errors import CallExpiredError, IdempotencyKeyError, InvalidTokenError
from anabranch.mcp import Durability
from anabranch.rounds import Asked, Returned, Rounds
from anabranch.testing import ManualClock
from tests.diary import DONE
from tests.durable.stores import Modelled

KEY = "a key of the tests, which is long enough"
OTHER = "another key of the tests, long enough"


class Confirm(BaseModel):
    ok: bool


pytestmark = pytest.mark.usefixtures("nothing_done")


def reserve(seat: str) -> str:
    DONE.append(f"reserve {seat}")
    return seat


def release(seat: str) -> None:
    DONE.append(f"release {seat}")


def pay(seat: str) -> str:
    DONE.append(f"pay {seat}")
    return f"ticket {seat}"


@tool
async def book(ctx: BranchContext, seat: str) -> str:
    await ctx.step(reserve, seat, undo=release)
    answer = await ctx.elicit(Confirm, "Pay?")
    if isinstance(answer, Accepted) and answer.content.ok:
        return await ctx.step(pay, seat)
    return "not paid"


@tool
async def also_book(ctx: BranchContext, seat: str) -> str:
    return seat


YES: dict[str, Any] = {"book/elicit.1": {"action": "accept", "content": {"ok": True}}}
NO: dict[str, Any] = {"book/elicit.1": {"action": "decline"}}
SEAT = {"seat": "1A"}


@pytest.fixture(params=["sealed", "stored"])
def store(request: pytest.FixtureRequest) -> Modelled | None:
    return Modelled() if request.param == "stored" else None


async def begun(rounds: Rounds, **given: Any) -> Asked:
    ended = await rounds.run(book, SEAT, **given)
    assert isinstance(ended, Asked)
    return ended


async def test_a_state_is_bound_to_tool_arguments_principal_and_audience(
    store: Modelled | None,
) -> None:
    mine = Rounds(keys=[KEY], store=store, audience="travel")
    asked = await begun(mine, principal="ann")
    for rounds, called, arguments, principal in [
        (mine, also_book, SEAT, "ann"),
        (mine, book, {"seat": "1B"}, "ann"),
        (mine, book, SEAT, "bob"),
        (mine, book, SEAT, ""),
        (Rounds(keys=[KEY], store=store, audience="other"), book, SEAT, "ann"),
        (Rounds(keys=[OTHER], store=store, audience="travel"), book, SEAT, "ann"),
    ]:
        with pytest.raises(InvalidTokenError):
            await rounds.run(called, arguments, state=asked.state, answers=YES, principal=principal)
        with pytest.raises(InvalidTokenError):
            await rounds.give_up(called, arguments, asked.state, principal=principal)
    assert DONE == ["reserve 1A"]
    rotated = Rounds(keys=[OTHER, KEY], store=store, audience="travel")
    ended = await rotated.run(book, SEAT, state=asked.state, answers=YES, principal="ann")
    assert ended == Returned("ticket 1A")


async def test_a_state_that_was_changed_is_refused(store: Modelled | None) -> None:
    rounds = Rounds(keys=[KEY], store=store)
    state = (await begun(rounds)).state
    middle = len(state) // 2
    other = "A" if state[middle] != "A" else "B"
    for forged in (
        "",
        "v1.",
        state[:-4],
        f"{state[:middle]}{other}{state[middle + 1 :]}",
        "\ud800",
    ):
        with pytest.raises(InvalidTokenError):
            await rounds.run(book, SEAT, state=forged, answers=YES)
    assert DONE == ["reserve 1A"]


async def test_a_state_expires(store: Modelled | None) -> None:
    clock = ManualClock()
    rounds = Rounds(keys=[KEY], store=store, clock=clock, ttl=60)
    asked = await begun(rounds)
    clock.advance(100_000)
    with pytest.raises(InvalidTokenError):
        await rounds.run(book, SEAT, state=asked.state, answers=YES)


async def test_arguments_that_mean_the_same_are_the_same(store: Modelled | None) -> None:
    @tool
    async def ask(ctx: BranchContext, nights: int = 2) -> str:
        return (await ctx.elicit(Confirm, f"{nights}?")).action

    rounds = Rounds(keys=[KEY], store=store)
    asked = await rounds.run(ask, {})
    assert isinstance(asked, Asked)
    answers = {asked.questions[0].id: {"action": "decline"}}
    ended = await rounds.run(ask, {"nights": "2"}, state=asked.state, answers=answers)
    assert ended == Returned("decline")


async def test_a_repeated_round_with_a_store_repeats_no_effect() -> None:
    rounds = Rounds(keys=[KEY], store=Modelled())
    first, again = await begun(rounds, call_id="7"), await begun(rounds, call_id="7")
    assert first.questions == again.questions
    assert DONE == ["reserve 1A"]
    for state in (first.state, again.state, first.state):
        ended = await rounds.run(book, SEAT, state=state, answers=YES)
        assert ended == Returned("ticket 1A")
    assert await rounds.run(book, SEAT, state=first.state, answers=YES) == Returned("ticket 1A")
    assert DONE == ["reserve 1A", "pay 1A"]
    with pytest.raises(InvalidTokenError):
        await rounds.run(book, SEAT, state=first.state, answers=NO)


async def test_a_call_id_is_for_one_call_of_one_principal() -> None:
    rounds = Rounds(keys=[KEY], store=Modelled())
    await begun(rounds, call_id="7", principal="ann")
    await begun(rounds, call_id="7", principal="bob")
    assert DONE == ["reserve 1A"] * 2
    with pytest.raises(IdempotencyKeyError):
        await rounds.run(book, {"seat": "1B"}, call_id="7", principal="ann")


async def test_with_a_store_a_state_is_a_reference() -> None:
    @tool
    async def ask_with_much(ctx: BranchContext) -> str:
        read = await ctx.step(much)
        return f"{(await ctx.elicit(Confirm, 'Go on?')).action} {len(read)}"

    sealed = await Rounds(keys=[KEY]).run(ask_with_much)
    rounds = Rounds(keys=[KEY], store=Durability(Modelled()))
    stored = await rounds.run(ask_with_much)
    assert isinstance(sealed, Asked)
    assert isinstance(stored, Asked)
    assert len(sealed.state) > 50_000
    assert len(stored.state) < 1_000
    answers = {stored.questions[0].id: {"action": "decline"}}
    ended = await rounds.run(ask_with_much, state=stored.state, answers=answers)
    assert ended == Returned("decline 50000")


def much() -> str:
    return "x" * 50_000


async def test_without_a_store_steps_after_a_state_run_each_time() -> None:
    rounds = Rounds(keys=[KEY])
    asked = await begun(rounds)
    for _ in range(2):
        await rounds.run(book, SEAT, state=asked.state, answers=YES)
    assert DONE == ["reserve 1A", "pay 1A", "pay 1A"]


async def test_giving_up_a_call_undoes_its_steps(store: Modelled | None) -> None:
    rounds = Rounds(keys=[KEY], store=store)
    asked = await begun(rounds)
    assert await rounds.give_up(book, SEAT, asked.state)
    assert DONE == ["reserve 1A", "release 1A"]


async def test_giving_up_a_stored_call_undoes_it_once() -> None:
    rounds = Rounds(keys=[KEY], store=Modelled())
    asked = await begun(rounds)
    for _ in range(2):
        assert await rounds.give_up(book, SEAT, asked.state)
    assert DONE == ["reserve 1A", "release 1A"]
    with pytest.raises(CallExpiredError):
        await rounds.run(book, SEAT, state=asked.state, answers=YES)


async def test_a_call_that_has_ended_is_not_undone() -> None:
    rounds = Rounds(keys=[KEY], store=Modelled())
    asked = await begun(rounds)
    await rounds.run(book, SEAT, state=asked.state, answers=YES)
    assert await rounds.give_up(book, SEAT, asked.state)
    assert DONE == ["reserve 1A", "pay 1A"]


broken = [False]


def release_if_it_works(seat: str) -> None:
    if broken[0]:
        raise OSError("no line")
    DONE.append(f"release {seat}")


@tool
async def hold(ctx: BranchContext, seat: str) -> str:
    """Reserve and ask; the undo may fail."""
    await ctx.step(reserve, seat, undo=release_if_it_works)
    return (await ctx.elicit(Confirm, "Pay?")).action


async def test_a_failing_undo_is_reported_and_tried_again(store: Modelled | None) -> None:
    clock = ManualClock()
    rounds = Rounds(keys=[KEY], store=store, clock=clock)
    asked = await rounds.run(hold, SEAT)
    assert isinstance(asked, Asked)
    broken[0] = True
    async with clock.running(step=1.0):
        assert not await rounds.give_up(hold, SEAT, asked.state)
    broken[0] = False
    if store is None:
        assert await rounds.give_up(hold, SEAT, asked.state)
    else:
        clock.advance(60)
        assert await rounds.expire(hold) == 1
    assert DONE == ["reserve 1A", "release 1A"]


async def test_a_call_that_is_not_continued_in_time_is_undone() -> None:
    clock = ManualClock()
    rounds = Rounds(keys=[KEY], store=Modelled(), clock=clock, ttl=60)
    asked = await begun(rounds)
    assert await rounds.expire(book) == 0
    clock.advance(61)
    assert await rounds.expire(book) == 1
    assert DONE == ["reserve 1A", "release 1A"]
    with pytest.raises(CallExpiredError):
        await rounds.run(book, SEAT, state=asked.state, answers=YES)


@tool
async def nap(ctx: BranchContext) -> str:
    """Sleep for longer than a call may wait."""
    await ctx.sleep(600)
    return "awake"


async def test_a_call_does_not_expire_while_it_sleeps(store: Modelled | None) -> None:
    clock = ManualClock()
    rounds = Rounds(keys=[KEY], store=store, clock=clock, ttl=60)
    asleep = await rounds.run(nap)
    assert isinstance(asleep, Asked)
    clock.advance(601)
    if store is not None:
        assert await rounds.expire(nap) == 0
    assert await rounds.run(nap, state=asleep.state) == Returned("awake")


async def test_without_a_store_no_call_expires() -> None:
    with pytest.raises(ValueError, match="store"):
        await Rounds(keys=[KEY]).expire(book)
