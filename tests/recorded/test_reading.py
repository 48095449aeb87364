"""A recorded call is read as it ran: rounds, steps, branches, questions, undos, and its state."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from mcp.types import InputRequiredResult

from anabranch import BranchContext, ToolError, tool
from anabranch._durable import (
    CallState,
    Holder,
    Reaper,
    RecordedCall,
    dump_entry,
    enter,
    latest_journal,
    listed,
    outline,
)
from anabranch._engine import Answer, Entry
from anabranch.errors import error_to_json
from anabranch.mcp import Durability
from tests.durable.harness import Desk, accept
from tests.durable.stores import Modelled
from tests.recorded.trips import (
    CALL,
    DONE,
    OWNER,
    Seats,
    desk,
    found,
    opened,
    played,
    recorded,
    release,
    reserve,
    rewritten,
    trip,
)


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def drawn(call: RecordedCall) -> list[str]:
    return [
        f"{'  ' * step.depth}{step.kind} {step.id.rpartition('/')[2]} r{step.round} {step.state}"
        for step in call.steps
    ]


async def test_a_waiting_call_names_its_questions() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)

    call = await recorded(store, at)

    assert (call.state, call.waits_for, call.lease) == ("waiting", ["seats"], None)
    assert drawn(call) == [
        "step reserve.1 r1 done",
        "branch look#1 r1 done",
        "  sample sample.1 r1 done",
        "  step weather.1 r1 done",
        "elicit seats r1 open",
    ]
    assert call.notices == 1
    (open_one,) = [step for step in call.steps if step.state == "open"]
    asked: Any = open_one.asked
    assert asked["message"] == "How many to Graz?"
    assert asked["requested_schema"]["properties"].keys() == {"number"}
    (reserved,) = [step for step in call.steps if step.undo]
    assert (reserved.undo, reserved.value) == ("registered", "Graz-1")
    assert reserved.undo_name == "tests.recorded.trips:release"


@tool
async def take_seats(ctx: BranchContext, city: str) -> str:
    asked = await ctx.race(ctx.elicit(Seats, city), ctx.sleep(3_600.0))
    return f"after {asked}"


async def test_a_call_that_sleeps_says_until_when() -> None:
    store, at = Modelled(), replace(desk(), tool=take_seats)
    begun = at.clock.now()
    await played(store, at, 1)

    call = await recorded(store, at)

    assert (call.state, call.waits_until) == ("waiting", begun + 3_600.0)
    await played(store, at)
    ended = await recorded(store, at)
    assert (ended.state, ended.waits_until) == ("done", None)


async def test_a_call_that_has_ended_shows_each_round_and_answer() -> None:
    store, at = Modelled(), desk()
    begun = at.clock.now()
    await played(store, at)

    call = await recorded(store, at)

    assert (call.state, call.value, call.waits_for) == ("done", "Graz-1: 3, Yes. fine", [])
    assert [(each.number, each.outcome, each.asks) for each in call.rounds] == [
        (1, "asked", ["seats"]),
        (2, "returned", []),
    ]
    assert [each.ended for each in call.rounds] == [begun, begun + 10]
    assert len({each.worker for each in call.rounds}) == 1
    steps = {step.id: step for step in call.steps}
    seats = steps["seats"]
    assert (seats.value, seats.answered_by, seats.answered_in) == (
        {"action": "accept", "content": {"number": 3}},
        "client",
        2,
    )
    assert steps["trip/look#1"].tokens == steps["trip/look#1/sample.1"].tokens == 9
    assert steps["trip/reserve.1"].undo == "not needed"


async def test_a_call_that_has_failed_shows_its_error_and_its_undos() -> None:
    store, at = Modelled(), desk(fails=True)
    with pytest.raises(ToolError):
        await played(store, at)

    call = await recorded(store, at)

    assert (call.state, call.error) == ("failed", "ToolError: no seats")
    assert [step.undo for step in call.steps if step.undo] == ["done"]
    assert call.rounds[-1].outcome == "failed"
    assert "release Graz-1" in DONE


async def test_a_call_with_remaining_undos_is_undoing() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    await opened(store, at, number=3)
    assert await store.fail(CALL, '{"type":"ToolError","message":"no"}', OWNER)

    call = await recorded(store, at)

    assert (call.state, call.error, call.waits_for) == ("undoing", "ToolError: no", [])
    assert [step.undo for step in call.steps if step.undo] == ["due"]


async def test_an_expired_call_has_been_undone() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    at.clock.advance(10_000)
    service = at.service(store)
    assert await Reaper(service, {"trip": trip}).expire() == 1

    call = await recorded(store, at)

    assert call.state == "expired"
    assert [step.undo for step in call.steps if step.undo] == ["done"]


async def test_a_round_that_runs_and_one_that_was_interrupted() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    await opened(store, at, number=3)

    call = await recorded(store, at)
    assert (call.state, call.rounds[-1].outcome) == ("running", "running")
    assert call.lease == Holder(worker=store.processes.name, until=at.clock.now() + 15)
    at.clock.advance(16)
    call = await recorded(store, at)
    assert (call.state, call.rounds[-1].outcome) == ("ready", "interrupted")
    assert call.lease is not None
    assert {step.id: step.value for step in call.steps}["seats"] == accept(number=3).model_dump(
        exclude_none=True
    )


async def test_a_call_that_has_just_begun_is_ready_and_empty() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    new = replace(await found(store), call_id="call_2", state=CallState.READY)
    await store.begin(new)

    call = await recorded(store, at, "call_2")

    assert (call.state, call.rounds, call.steps) == ("ready", [], [])


async def test_an_answer_from_a_page_is_marked() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    journal = await latest_journal(store, await found(store))
    entered: Any = {"action": "accept", "content": {"number": 3}}
    assert await enter(store, journal, "seats", Answer(entered), 1e12)
    assert (await recorded(store, at)).state == "waiting"
    service = at.service(store)
    await service.run_round(at.job(journal), journal, {}, _NONE)

    call = await recorded(store, at)

    assert {step.id: step.answered_by for step in call.steps}["seats"] == "page"


async def test_tasks_and_branches_that_are_still_open_are_shown() -> None:
    async def inner(ctx: BranchContext) -> str:
        await ctx.step(reserve, "Linz", undo=release)
        return (await ctx.elicit(Seats, "Inner?")).action

    @tool
    async def two(ctx: BranchContext) -> list[Any]:
        return list(await ctx.gather(ctx.branch(inner, name="inner"), ctx.elicit(Seats, "Outer?")))

    store, at = Modelled(), Desk(two, lambda _id, _request: accept(number=1))
    await played(store, at, 1)

    assert drawn(await recorded(store, at)) == [
        "branch inner#1 r1 open",
        "  step reserve.1 r1 done",
        "  elicit elicit.1 r1 open",
        "elicit elicit.1 r1 open",
    ]


async def test_a_live_call_can_be_read() -> None:
    store, at = Modelled(), desk()
    service = at.service(store)
    journal = service.new()

    async def answered(ask: Any) -> Answer:
        return Answer({"action": "accept", "content": {"number": 4}})

    await service.run_live(at.job(journal), journal, lambda call: call.drive(answered))

    call = await recorded(store, at)

    assert (call.state, [each.outcome for each in call.rounds]) == ("done", ["returned"])
    steps = {step.id: step for step in call.steps}
    assert (steps["seats"].answered_by, steps["seats"].answered_in) == ("client", 1)
    assert steps["trip/look#1/sample.1"].value is not None


async def test_lines_of_a_call_refer_to_each_other() -> None:
    at = replace(desk(), policy=partial(Durability, forks="fork"))
    store = Modelled()
    service = at.service(store)
    asked: Any = await at.request(service)
    for number in (1, 2):
        await at.request(service, asked.request_state, {"seats": accept(number=number)})

    first = await recorded(store, at)
    (name,) = first.lines
    other = await recorded(store, at, name)

    assert (other.lines, other.value) == ([CALL], "Graz-1: 2, Yes. fine")
    assert [each.outcome for each in other.rounds] == ["began here", "returned"]


async def test_entries_of_another_release_are_left_out() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    store = await rewritten(store, 0, state="? [99]", notes="")

    call = await recorded(store, at)

    assert (call.is_complete, call.state) == (False, "waiting")
    assert drawn(call)[0] == "step reserve.1 r1 done"


async def test_an_outline_has_no_value() -> None:
    secret = "Graz"
    store, at = Modelled(), desk(fails=True)
    with pytest.raises(ToolError):
        await played(store, at)
    failed = Entry("step", "", secret, error_to_json(ToolError(secret)))
    await store.record(CALL, 1, {"x": dump_entry(failed)})

    call = await recorded(store, at)
    shown = outline(call)

    assert secret in call.model_dump_json()
    assert secret not in shown.model_dump_json()
    assert "no seats" not in shown.model_dump_json()
    assert [step.id for step in shown.steps] == [step.id for step in call.steps]
    assert shown.error == "ToolError"


async def test_a_list_does_not_check_whether_a_call_runs() -> None:
    store, at = Modelled(), desk()
    await played(store, at, 1)
    assert listed(await found(store)).state == "waiting"


class _None:
    kind = "none"

    def make(self, asks: object, state: str) -> None:
        return None

    def dump(self, reply: object) -> dict[str, Any]:
        return {}

    def load(self, stored: object, state: str) -> None:
        return None


_NONE: Any = _None()


async def test_a_refused_answer_says_why() -> None:
    """A deployment changed the question, and the call asks it again."""

    @tool(name="trip")
    async def changed(ctx: BranchContext, city: str, fails: bool = False) -> str:
        return (await ctx.elicit(Seats, f"Seats to {city}?", key="seats")).action

    @tool(name="trip")
    async def original(ctx: BranchContext, city: str, fails: bool = False) -> str:
        return (await ctx.elicit(Seats, f"How many to {city}?", key="seats")).action

    store, at = Modelled(), replace(desk(), tool=original)
    first = await at.request(at.service(store))
    assert isinstance(first, InputRequiredResult)
    new = replace(at, tool=changed)
    await new.request(new.service(store), first.request_state, at.answer(first))

    call = await recorded(store, at)
    refused, open_one = call.steps
    assert (refused.id, refused.state, refused.answered_by) == ("seats", "failed", "client")
    assert refused.error is not None
    assert "the question changed" in refused.error
    assert (open_one.id, open_one.state, call.waits_for) == ("seats~2", "open", ["seats~2"])
