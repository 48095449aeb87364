"""A call started by one version of the code meets another: the other version continues it or leaves it."""

from typing import Any

import pytest
from mcp.types import ElicitRequestFormParams, InputRequiredResult

from anabranch import BranchContext, tool
from anabranch._durable import CallRecord, CallStore
from anabranch._engine import Finished
from anabranch.errors import CallExpiredError, NonDeterminismError, OtherVersionError, ToolError
from anabranch.tool import Tool
from tests.durable.harness import Desk, Ledger, Number, accept, always, reaper
from tests.durable.stores import Cut, CutAt, Modelled

ledger = Ledger()
BOOKED = [("reserve", "seat"), ("charge", "card")]
UNDONE = [("release", "seat")]


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    ledger.clear()


def reserve(what: str) -> str:
    ledger.append(("reserve", what))
    return what


def release(what: str) -> None:
    ledger.append(("release", what))


def lose(what: str) -> None:
    ledger.append(("lose", what))


def charge(what: str) -> str:
    ledger.append(("charge", what))
    return what


@tool(name="book")
async def book_1(ctx: BranchContext) -> str:
    await ctx.step(reserve, "seat", undo=release)
    await ctx.elicit(Number, "how many?")
    await ctx.step(charge, "card")
    return "booked"


@tool(name="book")
async def book_2(ctx: BranchContext) -> str:
    """Take the same way so far, and return more."""
    await ctx.step(reserve, "seat", undo=release)
    await ctx.elicit(Number, "how many?")
    await ctx.step(charge, "card")
    await ctx.step(charge, "card again")
    return "booked by the new code"


@tool(name="book")
async def book_otherwise(ctx: BranchContext) -> str:
    """Run a step before the question that the first version did not run."""
    await ctx.step(charge, "deposit", undo=lose)
    await ctx.step(reserve, "seat", undo=lose)
    await ctx.elicit(Number, "how many?")
    return "booked otherwise"


@tool(name="book")
async def book_fewer(ctx: BranchContext) -> str:
    await ctx.step(reserve, "seat", undo=release)
    answer = await ctx.elicit(Number, "how few?")
    await ctx.step(charge, "card")
    return f"booked {answer.action} few"


@tool(name="book")
async def book_elsewhere(ctx: BranchContext) -> str:
    """Run another step than the first version."""
    await ctx.step(reserve, "box", undo=release)
    await ctx.elicit(Number, "how many?")
    return "booked elsewhere"


def at_version(tool: Tool[Any], version: str, like: Desk | None = None) -> Desk:
    """Return a desk that plays the same call with other code, on the same clock."""
    desk = Desk(tool, always(n=1), version=version)
    if like is not None:
        desk.clock = like.clock
    return desk


async def asked(desk: Desk, store: CallStore) -> InputRequiredResult:
    outcome = await desk.send(store)
    assert isinstance(outcome, InputRequiredResult)
    return outcome


async def answer(desk: Desk, store: CallStore, first: InputRequiredResult, n: int = 1) -> Any:
    answers = {step_id: accept(n=n) for step_id in first.input_requests or {}}
    outcome = await desk.request(desk.service(store), first.request_state, answers)
    assert isinstance(outcome, Finished)
    return outcome.value


async def found(store: CallStore) -> CallRecord:
    record = await store.find("call_1")
    assert record is not None
    return record


async def test_other_code_with_the_same_steps_continues_the_call(store: CallStore) -> None:
    old = at_version(book_1, "1")
    first = await asked(old, store)
    assert (await found(store)).version == "1"
    new = at_version(book_2, "2", old)

    assert await answer(new, store, first) == "booked by the new code"
    assert ledger == [*BOOKED, ("charge", "card again")]
    assert (await found(store)).version == "2"


async def test_code_with_other_steps_leaves_the_call_to_its_version(store: CallStore) -> None:
    old = at_version(book_1, "1")
    first = await asked(old, store)
    new = at_version(book_otherwise, "2", old)
    for _ in range(2):
        with pytest.raises(OtherVersionError, match=r"Version '1' .* nothing is undone"):
            await answer(new, store, first)
    assert ledger == BOOKED[:1]
    record = await found(store)
    assert (record.state, record.version) == ("ready", "1")

    assert await answer(old, store, first) == "booked"
    assert ledger == BOOKED


async def test_an_answer_to_unfit_code_is_not_binding() -> None:
    store = Modelled()
    old = at_version(book_1, "1")
    first = await asked(old, store)
    with pytest.raises(OtherVersionError):
        await answer(at_version(book_otherwise, "2", old), store, first, n=1)

    assert await answer(old, store, first, n=2) == "booked"


async def test_a_client_that_tries_other_code_gets_the_full_time_again() -> None:
    store = Modelled()
    old = at_version(book_1, "1")
    first = await asked(old, store)
    deadline = (await found(store)).deadline
    old.clock.advance(100)
    with pytest.raises(OtherVersionError):
        await answer(at_version(book_otherwise, "2", old), store, first)

    assert (await found(store)).deadline == deadline + 100


async def test_code_of_the_same_version_with_other_steps_fails_the_call() -> None:
    store = Modelled()
    old = at_version(book_1, "1")
    first = await asked(old, store)

    with pytest.raises(NonDeterminismError):
        await answer(at_version(book_elsewhere, "1", old), store, first)
    assert ledger == BOOKED[:1]


@pytest.mark.parametrize("version", ["", "1"])
async def test_a_call_or_server_without_a_version_fits_any_version(version: str) -> None:
    store = Modelled()
    old = at_version(book_1, version)
    first = await asked(old, store)
    other = "" if version else "2"

    with pytest.raises(NonDeterminismError):
        await answer(at_version(book_elsewhere, other, old), store, first)


@pytest.mark.parametrize("version", ["", "1", "2"])
async def test_other_code_refuses_an_answer_to_a_changed_question(
    store: CallStore, version: str
) -> None:
    """The version may be equal: the words may come from a file that does not count as code."""
    old = at_version(book_1, "1")
    first = await asked(old, store)
    new = at_version(book_fewer, version, old)
    answers = {"book/elicit.1": accept(n=1)}
    second, repeated = [
        await new.request(new.service(store), first.request_state, answers) for _ in range(2)
    ]
    assert isinstance(second, InputRequiredResult)
    assert repeated == second
    [(step_id, question)] = (second.input_requests or {}).items()
    assert step_id == "book/elicit.1~2"
    assert isinstance(question.params, ElicitRequestFormParams)
    assert question.params.message == (
        "how few?\n\n"
        "(The last answer did not fit: the question was changed after it had been shown.)"
    )
    assert await answer(new, store, second) == "booked accept few"
    assert ledger == BOOKED


async def test_an_effect_after_an_answer_pins_its_question_over_a_crash(store: CallStore) -> None:
    old = at_version(book_1, "1")
    first = await asked(old, store)
    with pytest.raises(ToolError):
        await answer(old, CutAt(store, "end_round"), first)
    assert ledger == BOOKED

    with pytest.raises(OtherVersionError):
        await answer(at_version(book_fewer, "2", old), store, first)
    assert await answer(old, store, first) == "booked"
    assert ledger == BOOKED


@tool(name="book")
async def book_patched(ctx: BranchContext) -> str:
    """Reserve and charge as the first version does, or take a deposit first."""
    if await ctx.patched("deposit"):
        await ctx.step(charge, "deposit", undo=lose)
    await ctx.step(reserve, "seat", undo=release)
    await ctx.elicit(Number, "how many?")
    if await ctx.patched("receipt"):
        await ctx.step(charge, "receipt")
    await ctx.step(charge, "card")
    return "booked by the new code"


async def test_a_marker_lets_new_code_continue_an_old_call(store: CallStore) -> None:
    """The call has passed its first marker, but not its second."""
    old = at_version(book_1, "1")
    first = await asked(old, store)
    new = at_version(book_patched, "2", old)
    assert await answer(new, store, first) == "booked by the new code"
    assert ledger == [BOOKED[0], ("charge", "receipt"), BOOKED[1]]


async def test_a_marker_decided_before_a_crash_stays_decided(store: CallStore) -> None:
    """The interrupted round has recorded an effect of the new code, which is no sign of the old code."""
    desk = at_version(book_patched, "2")
    with pytest.raises(ToolError):
        await asked(desk, CutAt(store, "end_round"))
    first = await asked(desk, store)
    assert ledger == [("charge", "deposit"), BOOKED[0]]
    assert await answer(desk, store, first) == "booked by the new code"
    assert ledger[2:] == [("charge", "receipt"), BOOKED[1]]


async def test_an_answer_refused_before_a_crash_stays_refused(store: CallStore) -> None:
    def version(words: str) -> Tool[Any]:
        @tool(name="book")
        async def book(ctx: BranchContext) -> str:
            async def pay(branch: BranchContext) -> None:
                await branch.elicit(Number, "which card?")
                await branch.step(charge, "card")

            answer, _ = await ctx.gather(ctx.elicit(Number, words), ctx.branch(pay))
            return answer.action

        return book

    old = at_version(version("how many?"), "1")
    first = await asked(old, store)
    new = at_version(version("how few?"), "2", old)
    answers = {step_id: accept(n=1) for step_id in first.input_requests or {}}
    dying = new.service(CutAt(store, "end_round"))
    with pytest.raises(ToolError):
        await new.request(dying, first.request_state, answers)
    assert ledger == [("charge", "card")]

    second = await new.request(new.service(store), first.request_state, answers)
    assert isinstance(second, InputRequiredResult)
    assert list(second.input_requests or {}) == ["book/elicit.1~2"]
    assert await answer(new, store, second) == "accept"
    assert ledger == [("charge", "card")]


async def test_a_call_continued_by_other_code_belongs_to_that_code() -> None:
    """The version follows the code, since the old code cannot replay the new code's entries."""

    @tool(name="book")
    async def book_twice(ctx: BranchContext) -> str:
        """Ask one question more than the first version."""
        await ctx.step(reserve, "seat", undo=release)
        await ctx.elicit(Number, "how many?")
        await ctx.elicit(Number, "really?")
        return "booked twice"

    store = Modelled()
    old = at_version(book_1, "1")
    new = at_version(book_twice, "2", old)
    first = await asked(old, store)
    answers = {step_id: accept(n=1) for step_id in first.input_requests or {}}
    second = await new.request(new.service(store), first.request_state, answers)
    assert isinstance(second, InputRequiredResult)

    with pytest.raises(OtherVersionError, match="version '2'"):
        await answer(old, store, second)
    assert await answer(new, store, second) == "booked twice"


@pytest.mark.parametrize("died_at", ["record", "end_round"])
async def test_other_code_neither_repeats_nor_undoes_an_interrupted_round(
    store: CallStore, died_at: str
) -> None:
    """The process with the old code dies after an effect is recorded."""
    whole = Cut(Modelled(), None)
    await asked(at_version(book_1, "1"), whole)
    ledger.clear()
    old = at_version(book_1, "1")
    at = whole.asked.index(died_at)
    with pytest.raises(ToolError):
        await asked(old, Cut(store, at, after=died_at == "record"))
    with pytest.raises(OtherVersionError):
        await asked(at_version(book_otherwise, "2", old), store)
    assert ledger == BOOKED[:1]

    first = await asked(old, store)
    assert await answer(old, store, first) == "booked"
    assert ledger == BOOKED


async def test_code_with_the_same_steps_undoes_an_expired_call(store: CallStore) -> None:
    old = at_version(book_1, "1")
    first = await asked(old, store)
    old.clock.advance(1_000)
    other = at_version(book_otherwise, "2", old)

    assert await reaper(other, store).expire() == 0
    assert ledger == BOOKED[:1]
    old.clock.advance(31)
    assert await reaper(at_version(book_2, "3", old), store).expire() == 1
    assert ledger == [*BOOKED[:1], *UNDONE]
    with pytest.raises(CallExpiredError):
        await answer(old, store, first)


async def test_an_expired_call_that_other_code_cannot_undo_waits_for_its_version() -> None:
    store = Modelled()
    old = at_version(book_1, "1")
    first = await asked(old, store)
    old.clock.advance(1_000)
    assert await reaper(at_version(book_otherwise, "2", old), store).expire() == 0

    with pytest.raises(CallExpiredError):
        await answer(old, store, first)
    old.clock.advance(31)
    assert await reaper(old, store).expire() == 1
    assert ledger == [*BOOKED[:1], *UNDONE]
