"""``anabranch calls undo``: an open call ended on request, by the undos of the code that is given.

The code must take the way that is recorded: what other code would undo is not guessed.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from anabranch._durable.call_states import CallState
from anabranch._durable.expiry import Reaper
from anabranch._durable.policy import Durability
from anabranch._durable.service import CallService
from anabranch._durable.store import CallRecord, CallStore
from anabranch._recorded.reading import read_call
from anabranch._recorded.replaying import replay_call
from anabranch._recorded.shapes import RecordedCall
from anabranch._terminal.exits import FailedError
from anabranch.cli._confirmation import confirm
from anabranch.tool import Runtime, Tool


class Undone(BaseModel):
    """What was done to end a call: the steps that were undone, and those that are left."""

    model_config = ConfigDict(frozen=True)

    id: str
    tool: str
    state: CallState
    undone: list[str]
    left: list[str]


async def undo_call(
    calls: CallStore, record: CallRecord, tool: Tool[Any], runtime: Runtime | None, *, yes: bool
) -> Undone:
    """Undo what an open call of ``tool`` has done, and end it.

    Args:
        calls: has the call.
        record: the call.
        tool: the code whose undos are run.
        runtime: the conversation that the call came from; ``None`` if that is gone.
        yes: whether the person need not be asked.

    Raises:
        FailedError: it is not open, or runs; or the code takes another way.
        UsageError: there is no one to ask.
        StoreError: the store failed.
    """
    service = CallService(runtime or Runtime(), Durability(calls))
    clock = service.runtime.clock
    before = await read_call(calls, record, clock.now())
    if not before.state.is_open or before.state == CallState.RUNNING:
        raise FailedError(f"The call {record.call_id} is {before.state}: nothing was undone.")
    replayed = await replay_call(calls, record, tool, runtime)
    if not replayed.is_clean:
        at = f" at {replayed.drift.at}" if replayed.drift else f": {replayed.problem}"
        needs = f" Name the code of version {record.version}." if record.version else ""
        raise FailedError(
            f"The present code of {record.tool!r} takes another way than the call{at}, so nothing"
            f" was undone.{needs}"
        )
    steps = ", ".join(_with_undo(before, {"registered", "due"})) or "nothing, and it only ends"
    loss = f"The call {record.call_id} cannot be continued then. Undone will be: {steps}."
    await confirm(loss, "Undo it?", "Nothing was undone.", yes=yes)
    if not await Reaper(service, {record.tool: tool}).end(record.call_id):
        raise FailedError(f"The call {record.call_id} is running: nothing was undone.")
    after = await read_call(calls, await calls.find(record.call_id) or record, clock.now())
    return Undone(
        id=after.id,
        tool=after.tool,
        state=after.state,
        undone=_with_undo(after, {"done"}),
        left=_with_undo(after, {"registered", "due"}),
    )


def _with_undo(call: RecordedCall, states: set[str]) -> list[str]:
    return [each.id for each in call.steps if each.undo in states]
