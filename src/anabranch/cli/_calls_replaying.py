"""Replays recorded calls under the present code without effects, and undoes calls on request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from anabranch._durable import (
    OPEN,
    CallRecord,
    CallService,
    CallState,
    CallStore,
    Durability,
    Reaper,
    RecordedCall,
    Replayed,
    find_call,
    read_call,
    replay_call,
    without_tool,
)
from anabranch._terminal import FailedError, UsageError
from anabranch.agents import runtime_of
from anabranch.cli._output import confirm
from anabranch.cli._stores import Stores
from anabranch.cli._targets import is_url, load
from anabranch.tool import Runtime, Tool

PAGE = 100


class OfferedTools:
    def __init__(self, targets: Sequence[str]) -> None:
        for target in targets:
            if is_url(target):
                raise UsageError(
                    f"{target} is a running server. Name the file or module that has its tools."
                )
        self._targets = " ".join(targets)
        self._tools: Mapping[str, Tool[Any]] = {each.name: each for each in load(targets).tools}
        if not self._tools:
            raise UsageError(
                f"{self._targets} offers only an MCPServer. Name the module that defines its tools."
            )
        self._offered = ", ".join(sorted(self._tools))

    async def replay(self, stores: Stores, name: str) -> Replayed:
        record = await find_call(stores.calls, name)
        return await self._replay(stores, record, self._tool_of(record))

    async def replay_open(self, stores: Stores, names: Sequence[str]) -> list[Replayed]:
        missing = f"no such tool: {self._targets} offers {self._offered}"
        return [
            await self._replay(stores, record, self._tools[record.tool])
            if record.tool in self._tools
            else without_tool(record, missing)
            for each in dict.fromkeys(names) or (None,)
            for record in await _open_calls(stores.calls, each)
        ]

    async def undo(self, stores: Stores, name: str, *, yes: bool) -> Undone:
        record = await find_call(stores.calls, name)
        tool = self._tool_of(record)
        runtime = await runtime_of(stores.trees, record)  # None: its conversation is deleted
        service = CallService(runtime or Runtime(), Durability(stores.calls))
        clock = service.runtime.clock
        before = await read_call(stores.calls, record, clock.now())
        if not before.state.is_open or before.state == CallState.RUNNING:
            raise FailedError(f"The call {record.call_id} is {before.state}: nothing was undone.")
        replayed = await replay_call(stores.calls, record, tool, runtime)
        if not replayed.is_clean:
            at = f" at {replayed.drift.at}" if replayed.drift else f": {replayed.problem}"
            needs = f" Name the code of version {record.version}." if record.version else ""
            raise FailedError(
                f"The present code of {record.tool!r} differs from the record of the call{at}, so"
                f" nothing was undone.{needs}"
            )
        steps = ", ".join(_with_undo(before, {"registered", "due"})) or "nothing, and it only ends"
        loss = f"The call {record.call_id} cannot be continued then. Undone will be: {steps}."
        await confirm(loss, "Undo it?", "Nothing was undone.", yes=yes)
        if not await Reaper(service, {record.tool: tool}).end(record.call_id):
            raise FailedError(f"The call {record.call_id} is running: nothing was undone.")
        after = await read_call(
            stores.calls, await stores.calls.find(record.call_id) or record, clock.now()
        )
        return Undone(
            id=after.id,
            tool=after.tool,
            state=after.state,
            undone=_with_undo(after, {"done"}),
            left=_with_undo(after, {"registered", "due"}),
        )

    def _tool_of(self, record: CallRecord) -> Tool[Any]:
        if record.tool not in self._tools:
            raise UsageError(
                f"The call {record.call_id} is one of {record.tool!r}, which {self._targets} does"
                f" not offer. It offers: {self._offered}."
            )
        return self._tools[record.tool]

    async def _replay(self, stores: Stores, record: CallRecord, tool: Tool[Any]) -> Replayed:
        runtime = await runtime_of(stores.trees, record)
        return await replay_call(stores.calls, record, tool, runtime)


async def _open_calls(calls: CallStore, tool: str | None) -> list[CallRecord]:
    found: list[CallRecord] = []
    while page := await calls.calls(
        PAGE, tool=tool, states=OPEN, after=found[-1] if found else None
    ):
        found += page
    return found


class Undone(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: str
    tool: str
    state: CallState
    undone: list[str]
    left: list[str]


def _with_undo(call: RecordedCall, states: set[str]) -> list[str]:
    return [each.id for each in call.steps if each.undo in states]
