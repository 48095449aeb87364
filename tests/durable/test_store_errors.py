"""An error of a store concerns the server: the error is masked, and never recorded as the call's result."""

import logging
from dataclasses import replace

import pytest
from mcp.types import InputRequiredResult

from anabranch import BranchContext, StepFailed, StoreError, ToolError, tool
from anabranch._durable import CallRecord, CallState, CallStore, expiry
from anabranch.errors import UnknownCallError, error_to_json
from anabranch.testing import MockClient, run_tool
from tests.diary import DONE, forget, note
from tests.durable.harness import UNAVAILABLE, Desk, Number, accept, always
from tests.durable.stores import Modelled, Switch
from tests.mcp.harness import ERAS, Answers, connected, serving, text_of
from tests.sagas.harness import call_saga, text_in

SECRET = "postgresql://me:secret@host/calls"


pytestmark = pytest.mark.usefixtures("nothing_done")


def fail() -> None:
    raise UnknownCallError(SECRET)


@tool
async def fails(ctx: BranchContext) -> None:
    raise StoreError(f"The store {SECRET} failed.")


@tool
async def fails_later(ctx: BranchContext) -> None:
    await ctx.elicit(Number, "n?")
    raise StoreError(SECRET)


@tool
async def asks(ctx: BranchContext) -> None:
    await ctx.step(note, "begun", undo=forget)
    await ctx.elicit(Number, "n?")


@tool
async def fails_in_a_step(ctx: BranchContext) -> str:
    try:
        await ctx.step(fail)
    except StepFailed as failed:
        await ctx.elicit(Number, "n?")
        return failed.error
    return "nothing"


@pytest.mark.parametrize("error", [StoreError(SECRET), UnknownCallError(SECRET)])
def test_an_error_of_a_store_is_not_written_to_a_journal(error: StoreError) -> None:
    assert error_to_json(error) is None


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("stored", [False, True])
async def test_clients_never_see_the_message_of_a_store_error(era: str, stored: bool) -> None:
    serves = serving(fails, **({"store": Modelled()} if stored else {}))
    async with connected(serves, era, Answers()) as client:
        result = await client.call_tool("fails", {})
        saga = await call_saga(client, "fails", {})
    assert result.is_error
    assert saga["isError"] is True
    for shown in (text_of(result), text_in(saga)):
        assert "secret" not in shown
        assert (UNAVAILABLE if stored else "Error executing tool") in shown


async def test_a_step_that_raises_a_store_error_is_a_failed_step() -> None:
    """The author's code sees the same error in the round that ran the step and in every later round."""
    client = MockClient(elicits=[{"n": 1}])
    assert await run_tool(fails_in_a_step, {}, client) == "UnknownCallError"


async def test_a_store_error_in_a_round_is_no_recorded_failure(store: CallStore) -> None:
    desk = Desk(fails_later, always(n=1))
    first = await desk.send(store)
    assert isinstance(first, InputRequiredResult)
    answers = {step_id: accept(n=1) for step_id in first.input_requests or {}}
    for _ in range(2):
        with pytest.raises(ToolError, match=UNAVAILABLE):
            await desk.request(desk.service(store), first.request_state, answers)
    record = await store.find("call_1")
    assert record is not None
    assert record.state == "ready"
    assert await store.round("call_1", 1) is None


@tool
async def ends(ctx: BranchContext, by: str) -> str:
    await ctx.step(note, "done", undo=forget if by == "asks" else None)
    if by == "asks":
        await ctx.elicit(Number, "n?")
    if by == "fails":
        raise ToolError("no seat")
    return "a seat"


@pytest.mark.parametrize("by", ["asks", "returns", "fails"])
async def test_a_round_whose_end_the_store_refused_is_repeated_immediately_without_its_effects(
    quick: Modelled, by: str
) -> None:
    """The refused write did not release the lease, so the worker does."""
    desk = Desk(ends, always(n=1), arguments={"by": by})
    refusing = Switch(quick, only="end_round")
    refusing.is_off = True
    with pytest.raises(ToolError, match=UNAVAILABLE):
        await desk.send(refusing)
    refused: CallRecord | None = quick.model.find("call_1")
    assert refused is not None
    assert (refused.state, refused.lease) == ("ready", None)
    again = await desk.play(quick)
    assert again == (("error", "no seat") if by == "fails" else ("value", "a seat"))
    assert DONE == ["done"]


async def test_the_reaper_retries_a_call_that_the_store_failed_to_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error does not mean that the call cannot be undone: the call stays due."""
    store = Modelled()
    desk = Desk(asks, always(n=1))
    await desk.send(store)
    desk.clock.advance(1_000)
    tools = {"asks": asks}
    before: CallRecord | None = store.model.find("call_1")
    unreadable = Switch(store, only="last_round")
    unreadable.is_off = True
    with caplog.at_level(logging.WARNING):
        assert await expiry.Reaper(desk.service(unreadable), tools).expire() == 0
    assert "call 'call_1' was not ended this time: out of reach" in caplog.text
    assert before is not None
    assert store.model.find("call_1") == replace(before, state=CallState.UNDOING)
    assert await expiry.Reaper(desk.service(store), tools).expire() == 1
    assert DONE == ["begun", "not begun"]
