"""``check_replay`` runs a tool with each round replayed, finds differences, and repeats no effect."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, HandoffTool, Limits, tool
from anabranch._aio import Timer
from anabranch.errors import InvalidArgumentsError, StepFailed, ToolError
from anabranch.messages import SampleReply, SampleRequest
from anabranch.replay_check._rehearsal import rehearse
from anabranch.testing import ManualClock, MockClient, MockExhausted, check_replay

LINES = Path(__file__).read_text("utf-8").splitlines()


class Name(BaseModel):
    name: str


effects: list[str] = []
asked: list[str] = []
numbers: Iterator[int] = itertools.count()
"""0 in the first run that asks, 1 in the next one."""


@pytest.fixture(autouse=True)
def nothing_has_happened() -> None:
    global numbers  # noqa: PLW0603 - each test counts anew
    numbers = itertools.count()
    effects.clear()
    asked.clear()


def ada() -> MockClient:
    def answer(question: object) -> Name:
        asked.append(str(question))
        return Name(name="Ada")

    return MockClient(elicits=answer, samples=lambda request: "Yes.")


async def effect(name: str) -> str:
    effects.append(name)
    return name


def undo(name: str) -> None:
    effects.append(f"not {name}")


def make() -> object:
    effects.append("made")
    return object()


# -- differences that are found ----------------------------------------------------------------


async def numbered(ctx: BranchContext) -> None:
    await ctx.elicit(Name, f"Number {next(numbers)}. Who?")


async def shuffled(ctx: BranchContext) -> None:
    """The order of a set differs from process to process."""
    names = ["left", "right"]
    for name in names[:: -1 if next(numbers) % 2 else 1]:
        await ctx.elicit(Name, f"{name}?")


async def moody(ctx: BranchContext) -> None:
    asks = [ctx.elicit(Name, "Who?", key="who")]
    if next(numbers) % 2:
        asks.append(ctx.elicit(Name, "Why?", key="why"))
    await ctx.gather(*asks)


async def undecided(ctx: BranchContext) -> None:
    if next(numbers) % 2:
        await ctx.sample("Who?", key="who")
    else:
        await ctx.elicit(Name, "Who?", key="who")


async def counting(ctx: BranchContext) -> int:
    await ctx.elicit(Name, "Who?")
    return next(numbers)


async def failing(ctx: BranchContext) -> None:
    raise ToolError(f"number {next(numbers)}")


async def failing_at_times(ctx: BranchContext) -> str:
    if next(numbers) % 2:
        raise ToolError("no")
    return "yes"


async def talkative(ctx: BranchContext) -> None:
    await ctx.notify(f"at {next(numbers)}", progress=1, total=2)
    await ctx.elicit(Name, "Who?")


async def talkative_at_times(ctx: BranchContext) -> None:
    if next(numbers) % 2:
        await ctx.log("info", "odd")


async def varying(ctx: BranchContext) -> None:
    await ctx.step(effect, str(next(numbers)))
    await ctx.elicit(Name, "Who?")


async def choosing(ctx: BranchContext) -> None:
    await ctx.step(effect, "x", name=f"number{next(numbers)}")


async def forgetful(ctx: BranchContext) -> None:
    if next(numbers) == 0:
        await ctx.step(effect, "x")
    await ctx.elicit(Name, "Who?")


async def late(ctx: BranchContext) -> None:
    if next(numbers):
        ctx.now()
    await ctx.elicit(Name, "Who?")


async def changing_between_rounds(ctx: BranchContext) -> None:
    """Both runs of a round agree; the next round does not."""
    await ctx.elicit(Name, f"Number {len(asked)}")


async def stubborn(ctx: BranchContext) -> None:
    try:
        await ctx.elicit(Name, "Who?")
    except BaseException:  # noqa: BLE001 - the mistake that is to be found
        return


async def unordered(ctx: BranchContext) -> None:
    for done in asyncio.as_completed([asking(ctx)]):
        await done


async def asking(ctx: BranchContext) -> None:
    await ctx.elicit(Name, "Who?")


async def stepping(ctx: BranchContext) -> None:
    await ctx.step(asking, ctx)


async def opaque(ctx: BranchContext) -> None:
    await ctx.step(make)


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


FOUND: list[tuple[Any, str, str | None, Any, Any]] = [
    (
        numbered,
        "different-ask",
        "numbered/elicit.1",
        '{"message": "Number 0. Who?"}',
        '{"message": "Number 1. Who?"}',
    ),
    (
        shuffled,
        "different-ask",
        "shuffled/elicit.1",
        '{"message": "left?"}',
        '{"message": "right?"}',
    ),
    (moody, "different-asks", "why", "nothing", ...),
    (undecided, "different-ask", "who", "elicit", "sample"),
    (counting, "different-outcome", None, "0", "1"),
    (failing, "different-outcome", None, "ToolError: number 0", "ToolError: number 1"),
    (failing_at_times, "different-outcome", None, '"yes"', "ToolError: no"),
    (talkative, "different-notice", "talkative", '"1 2 at 0"', '"1 2 at 1"'),
    (talkative_at_times, "different-notice", "talkative_at_times", "nothing", '"odd"'),
    (varying, "different-step", "varying/effect.1", ..., ...),
    (choosing, "different-step", "choosing/number1.1", "nothing", "step effect"),
    (forgetful, "different-step", "forgetful/effect.1", ..., "not reached"),
    (late, "different-step", "late/now.1", ..., "now"),
    (changing_between_rounds, "different-step", "changing_between_rounds/elicit.1", ..., ...),
    (stubborn, "not-suspended", "stubborn/elicit.1", None, None),
    (opaque, "unrecordable-value", "opaque/make.1", None, None),
    (unordered, "context-use", "unordered/~asking#1/elicit", None, None),
    (stepping, "context-use", None, None, None),
    (impatient, "interrupted-step", "impatient/endless.1", None, None),
]
"""A body, and the difference that is found in it; ``...`` where it does not matter what is shown."""
REASONS: dict[Any, str] = {
    counting: "value",
    failing: "error",
    failing_at_times: "outcome",
    unordered: "started, in the order of a set.",
    stepping: "ctx was used inside a step's function.",
}
FIXES: dict[Any, str] = {unordered: "or tasks to as_completed", stepping: "after the step"}
ONCE: dict[Any, list[str]] = {
    varying: ["0"],
    choosing: ["x"],
    forgetful: ["x"],
    opaque: ["made"],
    impatient: ["begun"],
}


@pytest.mark.parametrize(("body", "rule", "step", "first", "second"), FOUND)
async def test_a_difference_between_two_runs_is_found_and_effects_happen_once(
    body: Any, rule: str, step: str | None, first: Any, second: Any
) -> None:
    (found,) = await check_replay(tool(body), {}, ada())
    assert (found.rule, found.step) == (rule, step)
    assert first in (..., found.first)
    assert second in (..., found.second)
    assert found.file == __file__
    assert LINES[found.line - 1].startswith(f"async def {body.__name__}(")
    assert REASONS.get(body, "") in found.reason
    assert FIXES.get(body, "") in found.fix
    assert effects == ONCE.get(body, [])


# -- tools that pass ---------------------------------------------------------------------------


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
    """After its last answer, a client may find out that it can no longer sample."""

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


# -- checks that do not end --------------------------------------------------------------------


async def test_effects_are_undone_when_a_round_differs() -> None:
    @tool
    async def varying(ctx: BranchContext) -> None:
        await ctx.step(effect, "x", undo=undo)
        await ctx.elicit(Name, f"Number {next(numbers)}")

    (found,) = await check_replay(varying, {}, ada())
    assert found.rule == "different-ask"
    assert effects == ["x", "not x"]


class Hurried:
    """A clock that moves on to each time for which a task waits."""

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
