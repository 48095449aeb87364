"""A call's record has the right end, and no call stays open by mistake."""

from typing import Any

import pytest
from mcp.server.mcpserver import Image
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, tool
from anabranch._asking import Host
from anabranch._durable import CallStore
from anabranch._engine import Finished
from anabranch.errors import CapabilityError, InvalidArgumentsError, SerializationError
from anabranch.tool import Tool
from tests.diary import DONE, forget, note
from tests.durable.harness import Desk, Number, accept, always
from tests.durable.stores import Modelled
from tests.mcp.harness import ERAS, Answers, connected, serving, text_of
from tests.sagas.harness import call_saga

pytestmark = pytest.mark.usefixtures("nothing_done")
UNDONE = ["begun", "not begun"]


@tool
async def cannot_cross(ctx: BranchContext) -> None:
    """Run a step whose value cannot be serialized."""
    await ctx.step(note, "begun", undo=forget)
    await ctx.step(object)


@tool
async def asks(ctx: BranchContext) -> str:
    await ctx.step(note, "begun", undo=forget)
    await ctx.elicit(Number, "n?")
    return "asked"


@tool
async def has_a_bug(ctx: BranchContext) -> None:
    await ctx.step(note, "begun", undo=forget)
    raise ZeroDivisionError


@tool
async def draws(ctx: BranchContext) -> Image:
    """Return an image, which is written for a host and cannot be read back."""
    await ctx.step(note, "begun", undo=forget)
    return Image(data=b"png", format="png")


@tool
async def strict(ctx: BranchContext, n: int) -> int:
    return n


async def status(store: CallStore) -> str:
    record = await store.find("call_1")
    return "unknown" if record is None else record.state


@pytest.mark.parametrize(
    ("failing", "error"), [(cannot_cross, SerializationError), (has_a_bug, ZeroDivisionError)]
)
async def test_a_failed_call_is_over_and_undone(
    store: CallStore, failing: Tool[Any], error: type[Exception]
) -> None:
    desk = Desk(failing, always(n=1))
    with pytest.raises(error):
        await desk.send(store)
    assert await status(store) == "failed"
    # An error that was masked before is masked in the same way again.
    with pytest.raises((error, RuntimeError)):
        await desk.send(store)
    assert DONE == UNDONE


async def test_a_call_that_asks_a_question_its_host_cannot_answer_is_over_and_undone(
    store: CallStore,
) -> None:
    desk = Desk(asks, always(n=1), host=Host(Capabilities(elicitation=False)))
    with pytest.raises(CapabilityError):
        await desk.send(store)
    assert await status(store) == "failed"
    assert DONE == UNDONE


async def test_a_file_is_returned_once(quick: Modelled) -> None:
    desk = Desk(draws, always(n=1))
    first = await desk.send(quick)
    assert isinstance(first, Finished)
    assert await status(quick) == "done"
    assert await desk.play(quick) == (
        "error",
        "This call has ended. Its result could not be stored, so it cannot be sent again.",
    )
    assert UNDONE[:1] == DONE


async def test_a_call_is_waiting_then_done_then_pruned(store: CallStore) -> None:
    desk = Desk(asks, always(n=1))
    first = await desk.send(store)
    assert isinstance(first, InputRequiredResult)
    assert await status(store) == "waiting"
    given: dict[str, BaseModel] = {key: accept(n=1) for key in first.input_requests or {}}
    await desk.request(desk.service(store), first.request_state, given)
    assert await status(store) == "done"
    await store.prune(desk.clock.now() + 86_401, 10)
    assert await status(store) == "unknown"


@pytest.mark.parametrize("era", ERAS)
async def test_invalid_arguments_start_no_call(era: str) -> None:
    store = Modelled()
    async with connected(serving(strict, store=store), era, Answers()) as client:
        refused = await client.call_tool("strict", {"n": "many"})
        assert refused.is_error
        assert "n" in text_of(refused)
        saga = await call_saga(client, "strict", {"n": "many"})
        assert saga["isError"] is True
    assert store.model.expired(1e12, 10) == []
    with pytest.raises(InvalidArgumentsError):
        strict.validate({"n": "many"})
