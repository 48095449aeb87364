"""A client that repeats a request, and two servers with the same request: one outcome."""

import asyncio
import json
from typing import Any

import pytest
from mcp.types import InputRequiredResult

from anabranch import Accepted, BranchContext, InvalidTokenError, ToolError, tool
from anabranch._durable import CallStore, Durability, Lease, enter
from anabranch._engine import Answer, Finished, Journal
from anabranch.messages import SampleReply, SampleRequest
from tests.durable.harness import (
    UNAVAILABLE,
    Desk,
    Ledger,
    Number,
    accept,
    always,
    asking,
    numbered,
    patiently,
)
from tests.durable.stores import Cut, Gate, Modelled, Switch

ledger = Ledger()


@pytest.fixture(autouse=True)
def clean() -> None:
    global ledger  # noqa: PLW0603 - undos are found by name in this module
    ledger = Ledger()


async def book(what: str) -> str:
    ledger.append(("book", what))
    await asyncio.sleep(0)
    return what


async def cancel(what: str) -> None:
    ledger.append(("cancel", what))
    await asyncio.sleep(0)


@tool
async def trip(ctx: BranchContext) -> list[str]:
    await ctx.notify("off we go")
    await ctx.step(book, "seat", undo=cancel)
    said: list[str] = []
    for number in range(2):
        answer = await ctx.elicit(Number, f"how many {number}?")
        assert isinstance(answer, Accepted)
        said.append(await ctx.step(book, f"{number}:{answer.content.n}", undo=cancel))
        if answer.content.n == 0:
            raise ToolError("none wanted")
    await ctx.log("info", "done")
    return said


@tool
async def both(ctx: BranchContext) -> list[str]:
    """Ask two questions concurrently, and book each as soon as its answer is known."""

    async def one(number: int) -> str:
        answer = await ctx.elicit(Number, f"how many {number}?")
        assert isinstance(answer, Accepted)
        return await ctx.step(book, f"{number}:{answer.content.n}")

    return list(await ctx.gather(one(0), one(1)))


def forking(store: CallStore) -> Durability:
    return Durability(store, forks="fork")


async def test_a_repeated_request_gets_the_reply_of_the_first(store: CallStore) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(store))
    answers = numbered(first, 3)
    second = asking(await desk.request(desk.service(store), first.request_state, answers))
    again = await desk.request(desk.service(store), first.request_state, answers)
    assert again == second
    last = numbered(second, 4)
    done = await desk.request(desk.service(store), second.request_state, last)
    assert done == Finished(["0:3", "1:4"])
    for _ in range(2):
        assert await desk.request(desk.service(store), second.request_state, last) == done
        assert await desk.request(desk.service(store), first.request_state, answers) == second
    assert ledger == [("book", "seat"), ("book", "0:3"), ("book", "1:4")]
    assert desk.notices == ["off we go", "done"]


async def test_another_answer_is_refused(
    store: CallStore, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(store))
    second = await desk.send(store, first, 3)
    for other in (numbered(first, 4), {}):
        with pytest.raises(InvalidTokenError):
            await desk.request(desk.service(store), first.request_state, other)
    again = await desk.send(store, first, 3)
    assert again == second
    assert ledger == [("book", "seat"), ("book", "0:3")]
    assert "answered differently before" in caplog.text


@pytest.mark.parametrize("policy", [Durability, forking])
async def test_an_answer_is_accepted_after_repetitions_without_an_answer(
    store: CallStore, policy: Any
) -> None:
    desk = Desk(trip, always(n=3), policy=policy)
    first = asking(await desk.send(store))
    again = first
    for _ in range(2):
        again = asking(await desk.request(desk.service(store), again.request_state))
        assert again.input_requests == first.input_requests
    second = asking(await desk.send(store, first, 3))
    for known in (first, again):
        assert await desk.send(store, known, 3) == second
    assert await desk.send(store, second, 4) == Finished(["0:3", "1:4"])
    assert ledger == [("book", "seat"), ("book", "0:3"), ("book", "1:4")]


async def test_another_answer_is_refused_after_a_repetition_without_an_answer(
    store: CallStore,
) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(store))
    again = asking(await desk.request(desk.service(store), first.request_state))
    await desk.send(store, again, 3)
    with pytest.raises(InvalidTokenError):
        await desk.send(store, first, 4)
    assert ledger == [("book", "seat"), ("book", "0:3")]


async def test_another_answer_forks_and_both_lines_run_to_their_end(store: CallStore) -> None:
    desk = Desk(trip, always(n=3), policy=forking)
    first = asking(await desk.send(store))
    lines: dict[int, InputRequiredResult] = {}
    for n in (3, 4):
        reply = await desk.send(store, first, n)
        lines[n] = asking(reply)
    for n in (4, 3):
        state, last = lines[n].request_state, numbered(lines[n], n)
        done = await desk.request(desk.service(store), state, last)
        assert done == Finished([f"0:{n}", f"1:{n}"])
        assert await desk.request(desk.service(store), state, last) == done
    for n in (3, 4):
        reply = await desk.send(store, first, n)
        assert reply == lines[n]
    assert sorted(ledger) == sorted(
        [("book", "seat"), *(("book", f"{i}:{n}") for i in (0, 1) for n in (3, 4))]
    )
    keys = ledger.by_key()
    assert len(keys) == 5


async def test_undos_of_shared_steps_belong_to_the_first_line(store: CallStore) -> None:
    desk = Desk(trip, always(n=3), policy=forking)
    first = asking(await desk.send(store))
    await desk.send(store, first, 3)
    with pytest.raises(ToolError, match="none wanted"):
        await desk.send(store, first, 0)
    assert ledger[-2:] == [("book", "0:0"), ("cancel", "0:0")]


async def test_an_undone_call_cannot_be_forked(store: CallStore) -> None:
    desk = Desk(trip, always(n=3), policy=forking)
    first = asking(await desk.send(store))
    with pytest.raises(ToolError, match="none wanted"):
        await desk.send(store, first, 0)
    assert ledger[-2:] == [("cancel", "0:0"), ("cancel", "seat")]
    with pytest.raises(InvalidTokenError):
        await desk.send(store, first, 3)
    assert len(ledger) == 4


async def test_two_servers_with_the_same_request_run_it_once(store: CallStore) -> None:
    desk = Desk(trip, always(n=3), policy=patiently)
    first = asking(await desk.send(store))
    answers = numbered(first, 3)
    async with desk.clock.running(0.01):
        replies = await asyncio.gather(
            *(desk.request(desk.service(store), first.request_state, answers) for _ in range(4))
        )
    assert all(reply == replies[0] for reply in replies)
    assert ledger == [("book", "seat"), ("book", "0:3")]


async def test_an_answer_is_pinned_before_an_effect_uses_it(quick: Modelled) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(quick))
    recorded = Switch(quick, only="record")
    gate = Gate(recorded, "record")
    request = asyncio.ensure_future(desk.send(gate, first, 3))
    await gate.arrived.wait()  # the effect has happened; its record is on the way and is lost
    recorded.is_off = True
    gate.opened.set()
    async with desk.clock.running(1):
        with pytest.raises(ToolError, match=UNAVAILABLE):
            await request
    recorded.is_off = False
    with pytest.raises(InvalidTokenError):
        await desk.send(quick, first, 4)
    await desk.send(quick, first, 3)
    assert ledger == [("book", "seat"), ("book", "0:3"), ("book", "0:3")]
    assert len(ledger.by_key()) == 2


async def test_a_state_of_an_unknown_call_is_refused(store: CallStore) -> None:
    desk = Desk(trip, always(n=3))
    elsewhere = Modelled()
    first = asking(await desk.send(elsewhere))
    with pytest.raises(InvalidTokenError):
        await desk.send(store, first, 3)
    assert ledger == [("book", "seat")]


def spilling(store: CallStore) -> Durability:
    return Durability(store, spill=0)


async def test_a_large_state_is_kept_in_the_store(store: CallStore) -> None:
    desk = Desk(trip, always(n=3), policy=spilling)
    first = asking(await desk.send(store))
    assert (first.request_state or "").startswith("@")
    second = asking(await desk.send(store, first, 3))
    again = await desk.send(store, first, 3)
    assert again == second
    done = await desk.send(store, second, 4)
    assert done == Finished(["0:3", "1:4"])


async def test_a_small_state_travels_with_the_client(quick: Modelled) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(quick))
    assert not (first.request_state or "@").startswith("@")


@pytest.mark.parametrize("change", ["line", "number", "digest", "shape", "text"])
async def test_a_reference_to_a_missing_state_is_refused(quick: Modelled, change: str) -> None:
    desk = Desk(trip, always(n=3), policy=spilling)
    first = asking(await desk.send(quick))
    line, number, digest = json.loads((first.request_state or "")[1:])
    forged = {
        "line": json.dumps(["other", number, digest]),
        "number": json.dumps([line, number + 1, digest]),
        "digest": json.dumps([line, number, digest[::-1]]),
        "shape": json.dumps([line, number]),
        "text": "not json",
    }[change]
    with pytest.raises(InvalidTokenError):
        await desk.request(desk.service(quick), f"@{forged}", numbered(first, 3))


class CountingModel:
    """A model of the server."""

    def __init__(self) -> None:
        self.asked = 0

    async def sample(self, request: SampleRequest) -> SampleReply:
        self.asked += 1
        return SampleReply.model_validate(
            {"role": "assistant", "content": {"type": "text", "text": f"no. {self.asked}"}}
        )


@tool
async def consult(ctx: BranchContext) -> list[str]:
    """Sample, ask the user, then sample again."""
    first = await ctx.sample("first")
    await ctx.step(book, first.text)
    await ctx.elicit(Number, "go on?")
    return [first.text, (await ctx.sample("second")).text]


async def test_the_servers_model_is_not_asked_again_after_a_crash(quick: Modelled) -> None:
    undisturbed = Cut(quick, None)
    await Desk(consult, always(n=1), sampler=CountingModel()).play(undisturbed)
    for at, name in enumerate(undisturbed.asked):
        model, behind = CountingModel(), Modelled()
        desk = Desk(consult, always(n=1), sampler=model)
        outcome = await desk.play(Cut(behind, at, after=True), behind)
        assert outcome == ("value", ["no. 1", "no. 2"]), name
        assert model.asked == 2, name


async def test_a_store_out_of_reach_is_reported_and_nothing_is_undone(store: CallStore) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(store))
    for name in ("open_round", "end_round"):
        switch = Switch(store, only=name)
        switch.is_off = True
        with pytest.raises(ToolError, match=UNAVAILABLE):
            await desk.send(switch, first, 3)
    assert ("cancel", "seat") not in ledger
    second = await desk.send(store, first, 3)
    assert asking(second).request_state != first.request_state
    assert ledger == [("book", "seat"), ("book", "0:3")]


async def test_a_first_call_is_refused_when_the_store_cannot_write_it(store: CallStore) -> None:
    """A readable store may not be writable: the call is not unknown, it never began."""
    desk = Desk(trip, always(n=3))
    switch = Switch(store, only="open_round")
    switch.is_off = True
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await desk.send(switch)
    assert ledger == []


async def test_an_ended_round_can_be_repeated_while_a_later_one_runs(store: CallStore) -> None:
    desk = Desk(trip, always(n=3))
    first = asking(await desk.send(store))
    second = await desk.send(store, first, 3)
    busy = Lease(store, "call_1", desk.clock, seconds=10)
    async with busy:
        await busy.open_round(9)
        again = await desk.send(store, first, 3)
    assert again == second


async def test_an_effect_in_flight_is_finished_when_its_client_leaves(store: CallStore) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slowly() -> str:
        ledger.append(("slowly", "begun"))
        begun.set()
        await may_end.wait()
        ledger.append(("slowly", "ended"))
        return "slow"

    @tool
    async def slow(ctx: BranchContext) -> str:
        value = await ctx.step(slowly)
        await ctx.elicit(Number, "go on?")
        return value

    desk = Desk(slow, always(n=1))
    request = asyncio.ensure_future(desk.send(store))
    await begun.wait()
    request.cancel()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait({request})
    assert request.cancelled()
    asking(await desk.send(store))
    assert ledger == [("slowly", "begun"), ("slowly", "ended")]


FIRST, OTHER = (f"both/~one#{number}/elicit.1" for number in (1, 2))


async def entered(store: CallStore, reply: InputRequiredResult, step_id: str, n: int) -> None:
    """Enter a user's answer to a question of ``both`` on a page."""
    answer = Answer({"action": "accept", "content": {"n": n}})
    assert await enter(store, Journal.loads(reply.request_state or ""), step_id, answer, 1e9)


@pytest.mark.parametrize("policy", [Durability, forking])
async def test_an_answer_entered_later_does_not_change_a_repeated_request(
    store: CallStore, policy: Any
) -> None:
    desk = Desk(both, always(n=3), policy=policy)
    first = asking(await desk.send(store))
    await entered(store, first, FIRST, 3)
    second = asking(await desk.request(desk.service(store), first.request_state))
    await entered(store, second, OTHER, 4)
    assert await desk.request(desk.service(store), first.request_state) == second
    done = Finished(["0:3", "1:4"])
    for _ in range(2):
        assert await desk.request(desk.service(store), second.request_state) == done
        assert await desk.request(desk.service(store), first.request_state) == second
    assert ledger == [("book", "0:3"), ("book", "1:4")]


async def test_an_answer_entered_after_a_crash_waits_for_the_next_round(store: CallStore) -> None:
    desk = Desk(both, always(n=3))
    first = asking(await desk.send(store))
    await entered(store, first, FIRST, 3)
    dead = Lease(store, "call_1", desk.clock, seconds=10)
    await dead.open_round(1, [*(first.input_requests or {})])
    await dead.give_up()
    await entered(store, first, OTHER, 4)
    desk.clock.advance(10)
    second = asking(await desk.request(desk.service(store), first.request_state))
    assert [*(second.input_requests or {})] == [OTHER]
    done = await desk.request(desk.service(store), second.request_state)
    assert done == Finished(["0:3", "1:4"])


async def test_a_request_with_answers_next_to_an_entered_answer_can_be_repeated(
    store: CallStore,
) -> None:
    desk = Desk(both, always(n=3))
    first = asking(await desk.send(store))
    await entered(store, first, OTHER, 4)
    given = {FIRST: accept(n=3)}
    for _ in range(2):
        done = await desk.request(desk.service(store), first.request_state, given)
        assert done == Finished(["0:3", "1:4"])
    with pytest.raises(InvalidTokenError):
        await desk.request(desk.service(store), first.request_state)
    assert ledger == [("book", "0:3"), ("book", "1:4")]


async def test_an_entered_answer_takes_precedence_over_a_requests_answer(store: CallStore) -> None:
    desk = Desk(both, always(n=3))
    first = asking(await desk.send(store))
    await entered(store, first, OTHER, 4)
    for _ in range(2):
        done = await desk.send(store, first, 3)
        assert done == Finished(["0:3", "1:4"])


async def test_a_forked_line_has_the_answers_entered_before_its_start(store: CallStore) -> None:
    desk = Desk(both, always(n=3), policy=forking)
    first = asking(await desk.send(store))
    await entered(store, first, FIRST, 3)
    second = asking(await desk.request(desk.service(store), first.request_state))
    assert [*(second.input_requests or {})] == [OTHER]
    given = {OTHER: accept(n=9)}
    for _ in range(2):
        done = await desk.request(desk.service(store), first.request_state, given)
        assert done == Finished(["0:3", "1:9"])
