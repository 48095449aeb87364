"""A recorded call is run against other code: without effects, it reports where the code differs."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch import BranchContext, ToolError, tool
from anabranch._durable import Drift, Replayed, replay_call
from anabranch.tool import Tool
from tests.durable.stores import Modelled
from tests.recorded.trips import (
    CALL,
    DONE,
    Seats,
    desk,
    found,
    look,
    opened,
    played,
    release,
    reserve,
    rewritten,
    trip,
)

After = Callable[[BranchContext, str], Awaitable[str]]


async def replayed(store: Modelled, present: Tool[Any] = trip) -> Replayed:
    """Replay the call; neither its store nor the world may change."""
    DONE.clear()
    asked = len(store.asked)
    outcome = await replay_call(store, await found(store), present)
    assert DONE == []
    assert set(store.asked[asked:]) <= {
        "find",
        "round",
        "last_round",
        "entries",
        "answers",
        "undone_steps",
    }
    return outcome


async def waiting(**arguments: Any) -> Modelled:
    store = Modelled()
    await played(store, desk(**arguments), 1)
    return store


async def ended() -> Modelled:
    store = Modelled()
    await played(store, desk(), 2)
    return store


def version(after: After) -> Tool[Any]:
    """Return another version of the tool, which runs another step after the branch."""

    @tool(name="trip")
    async def changed(ctx: BranchContext, city: str, fails: bool = False) -> str:
        await ctx.step(reserve, city, undo=release)
        await ctx.branch(look, city)
        return await after(ctx, city)

    return changed


async def asks(ctx: BranchContext, city: str) -> str:
    return (await ctx.elicit(Seats, f"How many to {city}?", key="seats")).action


async def asks_otherwise(ctx: BranchContext, city: str) -> str:
    return (await ctx.elicit(Seats, "Another question?", key="seats")).action


async def asks_nothing(ctx: BranchContext, city: str) -> str:
    return city


async def reserves_and_asks(ctx: BranchContext, city: str) -> str:
    await ctx.step(reserve, "Linz", name="another")
    return await asks(ctx, city)


async def asks_and_reserves(ctx: BranchContext, city: str) -> str:
    await asks(ctx, city)
    return await ctx.step(reserve, "Linz", name="another")


async def test_the_same_code_waits_where_the_record_waits() -> None:
    outcome = await replayed(await waiting())
    assert outcome == Replayed(id=CALL, tool="trip", ended="waits", next=["seats"])
    assert outcome.is_clean


async def test_the_same_code_ends_as_recorded() -> None:
    assert (await replayed(await ended())).ended == "ended"


async def test_the_same_code_fails_as_recorded() -> None:
    store = Modelled()
    with pytest.raises(ToolError):
        await played(store, desk(fails=True), 2)
    assert (await replayed(store)).ended == "ended"


async def test_an_open_question_in_other_words_is_asked_again() -> None:
    outcome = await replayed(await waiting(), version(asks_otherwise))
    assert (outcome.ended, outcome.next, outcome.reworded) == ("waits", ["seats"], ["seats"])


@pytest.mark.parametrize(
    ("after", "following"), [(asks_nothing, []), (reserves_and_asks, ["trip/another.1"])]
)
async def test_a_call_continues_when_the_code_no_longer_asks_its_open_question(
    after: After, following: list[str]
) -> None:
    outcome = await replayed(await waiting(), version(after))
    assert (outcome.ended, outcome.next) == ("continues", following)
    assert outcome.not_reached == ["seats"]


RETURNED = 'returned "Graz-1: 3, Yes. fine"'


@pytest.mark.parametrize(
    ("after", "at", "recorded", "now"),
    [
        (asks_otherwise, "seats", "elicit", "elicit with another message, form or context"),
        (reserves_and_asks, "seats", "elicit", "not reached"),
        (asks, "result", RETURNED, 'returns "accept"'),
        (asks_and_reserves, "trip/another.1", RETURNED, "continues with trip/another.1"),
    ],
)
async def test_an_ended_call_drifts_where_the_code_differs(
    after: After, at: str, recorded: str, now: str
) -> None:
    outcome = await replayed(await ended(), version(after))
    assert outcome.drift == Drift(at=at, recorded=recorded, now=now)
    assert not outcome.is_clean


async def test_a_replay_lists_the_markers_with_the_old_code() -> None:
    @tool(name="trip")
    async def changed(ctx: BranchContext, city: str, fails: bool = False) -> str:
        await ctx.step(reserve, city, undo=release)
        if not await ctx.patched("no look"):
            await ctx.branch(look, city)
        return f"{await asks(ctx, city)} {await ctx.patched('later')}"

    outcome = await replayed(await waiting(), changed)
    assert (outcome.ended, outcome.next, outcome.old_ways) == ("waits", ["seats"], ["no look"])


async def test_other_arguments_of_a_step_are_a_drift() -> None:
    @tool(name="trip")
    async def changed(ctx: BranchContext, city: str, fails: bool = False) -> str:
        await ctx.step(reserve, city.upper(), undo=release)
        return city

    outcome = await replayed(await waiting(), changed)
    assert outcome.drift == Drift(
        at="trip/reserve.1", recorded="step", now="step with another function or arguments"
    )


async def test_an_error_where_the_call_is_open_is_a_drift() -> None:
    @tool(name="trip")
    async def changed(ctx: BranchContext, city: str, fails: bool = False) -> str:
        raise LookupError(city)

    outcome = await replayed(await waiting(), changed)
    assert outcome.drift is not None
    assert (outcome.drift.at, outcome.ended) == ("trip/reserve.1", "drifts")


async def test_a_wrong_use_of_the_context_is_shown_with_its_remedy() -> None:
    async def clock(ctx: BranchContext) -> str:
        return str(ctx.now())

    async def unordered(ctx: BranchContext, city: str) -> str:
        await asks(ctx, city)
        return "".join([await done for done in asyncio.as_completed([clock(ctx)])])

    outcome = await replayed(await ended(), version(unordered))
    assert outcome.drift == Drift(
        at="result",
        recorded=RETURNED,
        now="raises ContextUseError: ctx was used at 'trip/~clock#1/now', in a coroutine that"
        " asyncio.as_completed started, in the order of a set. Pass ctx operations or tasks to"
        " as_completed, or give each operation a key=.",
    )


async def test_an_error_in_the_place_of_a_result_is_a_drift() -> None:
    @tool
    async def quick(ctx: BranchContext) -> int:
        return 1

    @tool
    async def broken(ctx: BranchContext) -> int:
        raise LookupError("gone")

    store = Modelled()
    await played(store, replace(desk(), tool=quick, arguments={}), 1)
    outcome = await replayed(store, broken)
    assert outcome.drift == Drift(
        at="result", recorded="returned 1", now="raises LookupError: gone"
    )
    store = Modelled()
    with pytest.raises(LookupError):
        await played(store, replace(desk(), tool=broken, arguments={}), 1)
    assert (await replayed(store, broken)).ended == "ended"
    outcome = await replayed(store, quick)
    assert outcome.drift is not None
    assert outcome.drift.recorded.startswith("failed: an error that is hidden from callers")


async def test_arguments_that_no_longer_fit_are_a_drift() -> None:
    @tool(name="trip")
    async def changed(ctx: BranchContext, place: str) -> str:
        return place

    outcome = await replayed(await waiting(), changed)
    assert outcome.drift is not None
    assert (outcome.drift.at, "place" in outcome.drift.now) == ("arguments", True)


async def test_an_interrupted_call_continues() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    await opened(store, at, number=2)
    assert (await replayed(store)).ended == "continues"
    await store.begin(replace(await found(store), call_id="call_2"))
    outcome = await replay_call(store, await found(store, "call_2"), trip)
    assert (outcome.ended, outcome.next) == ("continues", ["trip/reserve.1"])


async def test_a_call_of_another_release_cannot_be_read() -> None:
    store = await rewritten(await waiting(), 0, state="? [99]")
    outcome = await replayed(store)
    assert outcome.ended == "cannot be read"
    assert not outcome.is_clean


async def test_a_long_value_is_shortened() -> None:
    @tool
    async def long(ctx: BranchContext) -> str:
        return "x" * 10_000

    @tool
    async def longer(ctx: BranchContext) -> str:
        return "x" * 20_000

    store = Modelled()
    await played(store, replace(desk(), tool=long, arguments={}), 1)
    outcome = await replayed(store, longer)
    assert outcome.drift is not None
    assert len(outcome.drift.recorded) < 300
