"""A run with each round replayed: what differs is found, what happens happens once."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import (
    Accepted,
    BranchContext,
    Capabilities,
    HandoffTool,
    InvalidArgumentsError,
    Limits,
    StepFailed,
    ToolError,
    tool,
)
from anabranch._aio import Timer
from anabranch.messages import SampleReply, SampleRequest
from anabranch.replay_check._rehearsal import rehearse
from anabranch.testing import ManualClock, MockClient, MockExhausted, check_replay
from anabranch.tool import Tool

LINES = Path(__file__).read_text("utf-8").splitlines()


class Name(BaseModel):
    name: str


effects: list[str] = []
numbers: Iterator[int] = itertools.count()


@pytest.fixture(autouse=True)
def nothing_has_happened() -> None:
    effects.clear()


def ada() -> MockClient:
    return MockClient(elicits=lambda question: Name(name="Ada"), samples=lambda request: "Yes.")


async def effect(name: str) -> str:
    effects.append(name)
    return name


def undo(name: str) -> None:
    effects.append(f"not {name}")


# -- what is found -----------------------------------------------------------------------------


async def test_a_question_with_the_time_in_it_is_found() -> None:
    @tool
    async def clocked(ctx: BranchContext) -> None:
        await ctx.elicit(Name, f"It is {time.time_ns()}. Who?")

    (found,) = await check_replay(clocked, {}, ada())
    assert (found.rule, found.step) == ("different-ask", "clocked/elicit.1")
    assert found.first is not None
    assert found.first.startswith('{"message": "It is ')
    assert found.second is not None
    assert found.second.startswith('{"message": "It is ')
    assert found.first != found.second
    assert found.file == __file__
    assert LINES[found.line - 1] == "    @tool"


async def test_questions_in_an_order_of_chance_are_found() -> None:
    """The order turns round from run to run, as that of a set may from process to process."""
    orders = itertools.cycle([["left", "right"], ["right", "left"]])

    @tool
    async def shuffled(ctx: BranchContext) -> None:
        for name in next(orders):
            await ctx.elicit(Name, f"{name}?")

    (found,) = await check_replay(shuffled, {}, ada())
    assert found.rule == "different-ask"
    assert (found.first, found.second) == ('{"message": "left?"}', '{"message": "right?"}')


async def test_a_question_that_is_asked_in_one_run_alone_is_found() -> None:
    @tool
    async def moody(ctx: BranchContext) -> None:
        asks = [ctx.elicit(Name, "Who?", key="who")]
        if next(numbers) % 2:
            asks.append(ctx.elicit(Name, "Why?", key="why"))
        await ctx.gather(*asks)

    (found,) = await check_replay(moody, {}, ada())
    assert (found.rule, found.step) == ("different-asks", "why")
    assert "nothing" in {found.first, found.second}


async def test_another_kind_of_question_is_found() -> None:
    @tool
    async def undecided(ctx: BranchContext) -> None:
        if next(numbers) % 2:
            await ctx.sample("Who?", key="who")
        else:
            await ctx.elicit(Name, "Who?", key="who")

    (found,) = await check_replay(undecided, {}, ada())
    assert found.rule == "different-ask"
    assert {found.first, found.second} == {"sample", "elicit"}


async def test_another_value_is_found() -> None:
    @tool
    async def counting(ctx: BranchContext) -> int:
        await ctx.elicit(Name, "Who?")
        return next(numbers)

    (found,) = await check_replay(counting, {}, ada())
    assert (found.rule, found.step) == ("different-outcome", None)
    assert int(found.second or "") == int(found.first or "") + 1
    assert "value" in found.reason


@pytest.mark.parametrize("parity", [0, 1])
async def test_another_error_is_found(parity: int) -> None:
    @tool
    async def failing(ctx: BranchContext) -> None:
        raise ToolError(f"number {next(numbers)}")

    @tool
    async def failing_at_times(ctx: BranchContext) -> str:
        if next(numbers) % 2:
            raise ToolError("no")
        return "yes"

    chosen: Tool[Any] = failing if parity else failing_at_times
    (found,) = await check_replay(chosen, {}, ada())
    assert found.rule == "different-outcome"
    assert "ToolError: " in f"{found.first} {found.second}"


async def test_another_notice_is_found() -> None:
    @tool
    async def talkative(ctx: BranchContext) -> None:
        await ctx.notify(f"at {next(numbers)}", progress=1, total=2)
        await ctx.elicit(Name, "Who?")

    client = ada()
    (found,) = await check_replay(talkative, {}, client)
    assert (found.rule, found.step) == ("different-notice", "talkative")
    assert (found.first or "").startswith('"1 2 at ')
    assert len(client.notify_calls) == 1  # the replay delivers nothing


async def test_a_notice_of_one_run_alone_is_found() -> None:
    @tool
    async def at_times(ctx: BranchContext) -> None:
        if next(numbers) % 2:
            await ctx.log("info", "odd")

    (found,) = await check_replay(at_times, {}, ada())
    assert found.rule == "different-notice"
    assert {found.first, found.second} == {"nothing", '"odd"'}


async def test_a_step_with_another_argument_is_found_and_not_run_again() -> None:
    @tool
    async def varying(ctx: BranchContext) -> None:
        await ctx.step(effect, str(next(numbers)))
        await ctx.elicit(Name, "Who?")

    (found,) = await check_replay(varying, {}, ada())
    assert (found.rule, found.step) == ("different-step", "varying/effect.1")
    assert len(effects) == 1


async def test_a_step_that_the_replay_alone_comes_to_is_refused() -> None:
    @tool
    async def choosing(ctx: BranchContext) -> None:
        await ctx.step(effect, "x", name=f"number{next(numbers)}")

    (found,) = await check_replay(choosing, {}, ada())
    assert found.rule == "different-step"
    assert (found.first, found.second) == ("nothing", "step effect")
    assert effects == ["x"]


async def test_a_step_that_the_replay_leaves_out_is_found() -> None:
    runs = itertools.count()

    @tool
    async def forgetful(ctx: BranchContext) -> None:
        if next(runs) == 0:
            await ctx.step(effect, "x")
        await ctx.elicit(Name, "Who?")

    (found,) = await check_replay(forgetful, {}, ada())
    assert (found.rule, found.step) == ("different-step", "forgetful/effect.1")
    assert found.second == "not reached"


async def test_a_time_that_only_the_replay_asks_for_is_found() -> None:
    runs = itertools.count()

    @tool
    async def late(ctx: BranchContext) -> None:
        if next(runs):
            ctx.now()
        await ctx.elicit(Name, "Who?")

    (found,) = await check_replay(late, {}, ada())
    assert (found.rule, found.step, found.second) == ("different-step", "late/now.1", "now")


async def test_a_change_between_rounds_is_found() -> None:
    """Both runs of a round agree; the next round does not."""
    asked: list[str] = []

    def answer(question: object) -> Name:
        asked.append("Who?")
        return Name(name="Ada")

    @tool
    async def reading(ctx: BranchContext) -> None:
        await ctx.elicit(Name, f"Number {len(asked)}")

    (found,) = await check_replay(reading, {}, MockClient(elicits=answer))
    assert (found.rule, found.step) == ("different-step", "reading/elicit.1")


async def test_a_swallowed_cancellation_is_found() -> None:
    @tool
    async def stubborn(ctx: BranchContext) -> None:
        try:
            await ctx.elicit(Name, "Who?")
        except BaseException:  # noqa: BLE001 - the mistake that is to be found
            return

    (found,) = await check_replay(stubborn, {}, ada())
    assert (found.rule, found.step) == ("not-suspended", "stubborn/elicit.1")


async def test_a_value_that_cannot_be_recorded_is_found_and_not_made_again() -> None:
    def make() -> object:
        effects.append("made")
        return object()

    @tool
    async def opaque(ctx: BranchContext) -> None:
        await ctx.step(make)

    (found,) = await check_replay(opaque, {}, ada())
    assert (found.rule, found.step) == ("unrecordable-value", "opaque/make.1")
    assert effects == ["made"]


async def test_an_effect_that_is_cut_off_is_found_and_not_begun_again() -> None:
    @tool
    async def impatient(ctx: BranchContext) -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            effects.append("begun")
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(ctx.step(endless))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])

    (found,) = await check_replay(impatient, {}, ada())
    assert (found.rule, found.step) == ("interrupted-step", "impatient/endless.1")
    assert effects == ["begun"]


# -- what is not -------------------------------------------------------------------------------


async def careful_branch(ctx: BranchContext, number: int) -> str:
    await ctx.log("info", f"branch {number}")
    first = await ctx.sample(f"First {number}?")
    await ctx.step(effect, f"branch {number}")
    return first.text + (await ctx.sample(f"Second {number}?")).text


@tool
async def careful(ctx: BranchContext, names: list[str]) -> list[str]:
    names.append(f"{ctx.now()} {ctx.uuid()} {ctx.random.random()}")
    await ctx.notify("begun")
    first = await ctx.elicit(Name, f"Who, of {names}?")
    assert isinstance(first, Accepted)
    await ctx.step(effect, "careful", undo=undo)
    both = await ctx.gather(ctx.branch(careful_branch, 1), ctx.branch(careful_branch, 2))
    won = await ctx.race(ctx.step(effect, "race"), ctx.sample("Race?"))
    return [*names, first.content.name, *both, str(won)]


async def test_a_tool_that_is_right_passes_and_its_effects_happen_once() -> None:
    client = ada()
    assert await check_replay(careful, {"names": ["Ada"]}, client) == []
    assert sorted(effects) == ["branch 1", "branch 2", "careful", "race"]
    assert len(client.elicit_calls) == 1
    assert [call.message for call in client.notify_calls] == ["begun"]
    assert sorted(call.message for call in client.log_calls) == ["branch 1", "branch 2"]


async def test_the_capabilities_of_a_client_are_asked_once() -> None:
    """A client may find out, with its last answer given, that it can no longer sample."""

    class Tiring(MockClient):
        async def sample(self, request: SampleRequest, /, *, step_id: str = "") -> SampleReply:
            self.capabilities = Capabilities(sampling=False)
            return await super().sample(request, step_id=step_id)

    @tool
    async def thinking(ctx: BranchContext) -> str:
        return (await ctx.sample("Why?")).text

    done = await rehearse(thinking, {}, Tiring(samples=["Because."]))
    assert done.last is not None
    assert (done.findings, done.last.error, done.last.value) == ([], None, "Because.")


async def test_a_tool_that_fails_the_same_way_twice_passes_and_is_undone_once() -> None:
    @tool
    async def failing(ctx: BranchContext) -> None:
        await ctx.step(effect, "x", undo=undo)
        await ctx.elicit(Name, "Who?")
        await ctx.step(effect, "y", undo=undo)
        raise ToolError("no")

    assert await check_replay(failing, {}, ada()) == []
    assert effects == ["x", "y", "not y", "not x"]


async def test_a_step_that_fails_is_not_tried_again() -> None:
    def refuse() -> None:
        effects.append("tried")
        raise ValueError("no")

    @tool
    async def trying(ctx: BranchContext) -> str:
        try:
            await ctx.step(refuse)
        except StepFailed as error:
            await ctx.elicit(Name, str(error))
        return "done"

    assert await check_replay(trying, {}, ada()) == []
    assert effects == ["tried"]


async def test_a_handoff_passes_with_its_phases_run_once() -> None:
    class Phases(HandoffTool):
        """Three phases."""

        async def before(self) -> int:
            effects.append("before")
            return 1

        async def client(self, handoff: int, ctx: BranchContext) -> int:
            await ctx.sample(str(handoff))
            return handoff + 1

        async def after(self, handoff: int, picked: int) -> int:
            effects.append("after")
            return picked

    assert await check_replay(Phases(), {}, ada()) == []
    assert effects == ["before", "after"]


async def test_a_branch_that_runs_out_of_time_passes() -> None:
    clock = ManualClock()

    def late(question: object) -> Name:
        clock.advance(3600)
        return Name(name="Ada")

    async def ask(ctx: BranchContext) -> None:
        await ctx.elicit(Name, "Who?")

    @tool
    async def timed(ctx: BranchContext) -> str:
        try:
            await ctx.branch(ask, timeout=60)
        except TimeoutError:
            return "late"
        return "in time"

    limits = Limits(timeout=7200)
    client = MockClient(elicits=late)
    assert await check_replay(timed, {}, client, clock=clock, limits=limits) == []


async def test_a_value_that_equals_only_itself_is_compared_by_its_type() -> None:
    @tool
    async def opaque(ctx: BranchContext):  # type: ignore[no-untyped-def]  # noqa: ANN202 - an object
        return object()

    assert await check_replay(opaque) == []


@pytest.mark.parametrize(
    ("example", "params"),
    [
        ("wizard:plan_trip", {"days": 2}),
        ("pick_card:pick_card", {"analyze": True}),
        ("deploy:deploy", {"version": "x"}),
        ("book_flight:book_flight", {"destination": "Rome", "pay_online": True}),
    ],
)
async def test_the_examples_pass(example: str, params: dict[str, object]) -> None:
    def fill(question: object) -> dict[str, object]:
        fields = getattr(question, "requested_schema", {}).get("properties", {})
        values = {"city": "Graz", "cardNumber": 2, "target": "x", "ok": True}
        return {name: values[name] for name in fields if name in values}

    def advise(request: SampleRequest) -> str:
        recommend = request.messages[0].text.startswith("Recommend")
        return '{"number": "AB2", "reason": "cheap"}' if recommend else "Fine."

    module, _, name = example.partition(":")
    found = getattr(import_module(f"examples.{module}"), name)
    done = await rehearse(found, params, MockClient(samples=advise, elicits=fill))
    assert done.findings == []
    assert done.last is not None
    assert done.last.error is None


# -- when a check does not come to its end -----------------------------------------------------


async def test_effects_are_undone_when_a_round_differs() -> None:
    @tool
    async def varying(ctx: BranchContext) -> None:
        await ctx.step(effect, "x", undo=undo)
        await ctx.elicit(Name, f"Number {next(numbers)}")

    (found,) = await check_replay(varying, {}, ada())
    assert found.rule == "different-ask"
    assert effects == ["x", "not x"]


class Hurried:
    """A clock that goes on to each time that somebody waits for."""

    def __init__(self) -> None:
        self._clock = ManualClock()

    def now(self) -> float:
        return self._clock.now()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        alarm = self._clock.call_at(when, callback)
        self._clock.advance(when - self.now())
        return alarm


async def test_effects_are_undone_when_the_client_fails() -> None:
    def broken_undo(name: str) -> None:
        raise ValueError("locked")

    @tool
    async def asking(ctx: BranchContext) -> None:
        await ctx.step(effect, "x", undo=undo)
        await ctx.step(effect, "y", undo=broken_undo)
        await ctx.elicit(Name, "Who?")

    with pytest.raises(MockExhausted) as caught:
        await check_replay(asking, {}, MockClient(), clock=Hurried())
    assert effects == ["x", "y", "not x"]
    assert "locked" in caught.value.__notes__[0]


async def test_arguments_that_do_not_fit_are_refused_before_anything_runs() -> None:
    with pytest.raises(InvalidArgumentsError):
        await check_replay(careful, {"names": 1}, ada())
