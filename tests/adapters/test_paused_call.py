"""Calls that a framework pauses: what of them it stores, and what continues them."""

from typing import Any

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, StoreError, ToolError, tool
from anabranch.adapters._paused_call import PausedCall, as_text, is_for_model, without_state
from anabranch.adapters._stored_call import AdaptedTool, questions_of
from anabranch.models import ModelError
from anabranch.rounds import InvalidAnswerError, Returned, Rounds
from anabranch.testing import ManualClock


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)


begun: list[str] = []


def search() -> str:
    begun.append("search")
    return "found"


@tool
async def book(ctx: BranchContext) -> str:
    """Search, then ask."""
    await ctx.step(search)
    return (await ctx.elicit(Stay, "How long?")).action


@tool
async def nap(ctx: BranchContext) -> dict[str, str]:
    """Sleep for a day."""
    await ctx.sleep(86_400)
    return {"is": "awake"}


@tool
async def refuse(ctx: BranchContext) -> str:
    """Refuse."""
    raise ToolError("We are closed.")


@tool
async def fail(ctx: BranchContext) -> str:
    """Fail as nobody expects."""
    raise OSError("a secret")


@pytest.fixture
def rounds() -> Rounds:
    begun.clear()
    return Rounds(keys=["a key of the tests, which is long enough"], clock=ManualClock())


def accept(nights: int) -> dict[str, Any]:
    return {"book/elicit.1": {"action": "accept", "content": {"nights": nights}}}


async def test_nothing_runs_without_answers(rounds: Rounds) -> None:
    call = PausedCall(book, {}, rounds)
    paused = await call.next()
    assert isinstance(paused, dict)
    assert await call.next(paused) == paused
    assert await call.next(paused, {}) == paused
    assert await call.next(paused, accept(2)) == Returned("accept")
    assert begun == ["search"]


async def test_an_invalid_answer_pauses_again_and_says_why(rounds: Rounds) -> None:
    call = PausedCall(book, {}, rounds)
    paused = await call.next()
    assert isinstance(paused, dict)
    again = await call.next(paused, accept(99))
    assert isinstance(again, dict)
    assert "nights: must be 1 to 30" in again["problem"]
    assert {name: again[name] for name in paused} == paused
    assert without_state(again).keys() == {"questions", "until", "problem"}
    assert await call.next(again, accept(3)) == Returned("accept")


async def test_a_first_round_with_answers_is_a_mistake_of_the_adapter(rounds: Rounds) -> None:
    with pytest.raises(InvalidAnswerError):
        await PausedCall(book, {}, rounds).next(None, accept(2))


async def test_a_sleep_that_has_ended_continues_without_answers(rounds: Rounds) -> None:
    call = PausedCall(nap, {}, rounds)
    asleep = await call.next()
    assert isinstance(asleep, dict)
    assert await call.next(asleep) == asleep
    assert isinstance(rounds.clock, ManualClock)
    rounds.clock.advance(86_400)
    assert await call.next(asleep) == Returned({"is": "awake"})


async def test_what_was_not_paused_here_is_refused(rounds: Rounds) -> None:
    with pytest.raises(ValueError, match="JSON"):
        await PausedCall(book, {}, rounds).next({"approved": True})


async def test_a_stored_call_ends_with_the_text_that_the_model_reads(rounds: Rounds) -> None:
    adapted = AdaptedTool(book, rounds)
    call = await adapted.begin({}, "ann")
    assert questions_of({"1": call})["1"]["questions"][0]["message"] == "How long?"
    ended = await adapted.advance(call, accept(2), "ann")
    assert ended["text"] == "accept"
    assert questions_of({"1": ended}) == {}
    assert await adapted.advance(ended, accept(3), "ann") == ended


async def test_the_model_reads_why_a_tool_refuses_and_no_other_error(rounds: Rounds) -> None:
    assert (await AdaptedTool(refuse, rounds).begin({}, ""))["text"] == "We are closed."
    with pytest.raises(OSError, match="a secret"):
        await AdaptedTool(fail, rounds).begin({}, "")


def test_errors_about_the_servers_own_affairs_are_not_for_the_model() -> None:
    assert is_for_model(ToolError("Closed."))
    for error in (StoreError("It is locked."), ModelError("No key."), ValueError("a bug")):
        assert not is_for_model(error)


def test_a_value_is_text() -> None:
    assert as_text("as it is") == "as it is"
    assert as_text({"stay": Stay(nights=2), "tags": {"a"}}) == '{"stay":{"nights":2},"tags":["a"]}'
    assert as_text("\udce9") == "\\udce9"
