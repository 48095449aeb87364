"""The reaper ends calls that no client continued before their deadline, and deletes old calls.

An expired call is compensated, and cannot be continued. Any number of processes may run a reaper
over one store: the holder of a call's lease ends the call.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from anabranch._aio import run_every, run_until
from anabranch._asking import Capabilities, Host
from anabranch._durable.job import Durability
from anabranch._durable.lease import Lease
from anabranch._durable.recorder import StoreRecorder
from anabranch._durable.rehearsal import fits
from anabranch._durable.service import CallService
from anabranch._durable.states import latest_journal
from anabranch._durable.store import CallRecord
from anabranch._durable.transitions import CallEvent
from anabranch._engine import discard
from anabranch._telemetry import call_in_logs, report_open_calls
from anabranch.errors import AnabranchError, CallExpiredError, StoreError
from anabranch.tool import Runtime, Tool, open_call

logger: logging.Logger = logging.getLogger("anabranch.durable")

INTERVAL = 30.0
"""Seconds between two passes."""

BATCH = 100
"""Maximum calls that are read, or ended, at the same time."""

PATIENCE = 60.0
"""Seconds that a pass waits for compensations; a slower compensation continues in the background."""


class Reaper:
    """Ends the expired calls of ``tools``; calls of other tools are left to servers that have these.

    ``patience`` is the number of seconds that a pass waits for compensations. ``runtime_of``
    returns the environment of a call; by default, that of ``calls``.
    """

    def __init__(
        self,
        calls: CallService,
        tools: Mapping[str, Tool[Any]],
        *,
        patience: float = PATIENCE,
        runtime_of: Callable[[CallRecord], Awaitable[Runtime]] | None = None,
    ) -> None:
        if calls.durability is None:
            raise ValueError("A Reaper needs calls with a store.")
        self._calls = calls
        self._policy: Durability = calls.durability
        self._tools = tools
        self._patience = patience
        self._runtime_of = runtime_of
        self._ending: dict[str, asyncio.Task[bool]] = {}

    async def run(self) -> NoReturn:
        """End the expired calls every :data:`INTERVAL` seconds, until cancelled."""
        await run_every(self._calls.runtime.clock, INTERVAL, "expire calls", self.expire)

    async def expire(self) -> int:
        """End the expired calls, and delete old ones; return the number of calls that have ended."""
        store, now = self._policy.store, self._calls.runtime.clock.now()
        ended, seen, limit = 0, set(self._ending), BATCH
        while True:
            overdue = await store.expired(now, limit)
            new = [record for record in overdue if record.call_id not in seen]
            seen.update(record.call_id for record in new)
            ours = [record for record in new if record.tool in self._tools]
            for start in range(0, len(ours), BATCH):
                ended += await self._end_all(ours[start : start + BATCH])
            if len(overdue) < limit:
                break
            # Calls of other workers or other tools stay at the front: read past them.
            limit *= 2
        number, *times = await store.open_calls()
        report_open_calls(number, *(0.0 if each is None else now - each for each in times))
        while await store.prune(now, BATCH) == BATCH:
            pass
        return ended

    async def end(self, line: str) -> bool:
        """End a call now, whatever its deadline; after a failure, the next pass tries again.

        Return false, without any change, if another worker runs the call.
        """
        store = self._policy.store
        async with self._lease(line) as lease:
            record = await lease.take_to_undo(is_due=False)
            if record is not None:
                await self._try_to_end(record, lease)
                return True
        left = await store.find(line)
        return left is None or not left.state.is_open

    async def _end_all(self, records: Sequence[CallRecord]) -> int:
        """End calls concurrently; return the number that ended within ``patience``."""
        running = [asyncio.ensure_future(self._try_to_end(record)) for record in records]
        for record, task in zip(records, running, strict=True):
            self._ending[record.call_id] = task
            task.add_done_callback(partial(self._forget, record.call_id))
        if not running:
            return 0
        clock = self._calls.runtime.clock
        try:
            await run_until(clock, clock.now() + self._patience, _ended(running))
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            raise
        done = [task.result() for task in running if task.done()]
        if late := len(running) - len(done):
            logger.warning("the compensations of %d calls take long; they continue", late)
        return sum(done)

    def _forget(self, line: str, _: object) -> None:
        del self._ending[line]

    def _lease(self, line: str) -> Lease:
        store, clock, seconds = self._policy.store, self._calls.runtime.clock, self._policy.lease
        return Lease(store, line, clock, seconds=seconds)

    async def _try_to_end(self, record: CallRecord, lease: Lease | None = None) -> bool:
        """End a call: under ``lease`` if given, otherwise only if it is due and no worker runs it."""
        try:
            with call_in_logs(record.call_id):
                if lease is not None:
                    return await self._end(record, lease)
                async with self._lease(record.call_id) as taken:
                    due = await taken.take_to_undo(is_due=True)
                    return due is not None and await self._end(due, taken)
        except StoreError as error:
            logger.warning("call %r was not ended this time: %s", record.call_id, error)
        except Exception:
            # A tool's validation is author code: its failure must not stop the other calls.
            logger.exception("call %r was not ended this time", record.call_id)
        return False

    async def _end(self, record: CallRecord, lease: Lease) -> bool:
        """Undo the effects of a call, under ``lease``; return whether it has ended."""
        clock, policy = self._calls.runtime.clock, self._policy
        if await self._compensate(record, self._tools[record.tool], lease):
            end = CallEvent.STOP if record.is_stopped else CallEvent.EXPIRE
            if record.failure is not None:
                end = CallEvent.RAISE
            return await lease.move(end, deadline=clock.now() + policy.retain)
        await lease.move(CallEvent.RETRY, deadline=clock.now() + policy.retry_undo_after)
        return False

    async def _compensate(self, record: CallRecord, tool: Tool[Any], lease: Lease) -> bool:
        store, line = self._policy.store, record.call_id
        try:
            journal = await latest_journal(store, record)
            arguments = tool.validate(json.loads(record.arguments))
        except StoreError:
            raise
        except (ValueError, AnabranchError) as problem:
            logger.error("call %r cannot be undone: %s", line, problem)  # noqa: TRY400 - the sentence is all
            return False
        if not journal.compensations:
            return True
        host = Host(Capabilities())
        runtime = await self._runtime_of(record) if self._runtime_of else self._calls.runtime
        is_other = self._calls.runtime.is_other(record.version)
        if is_other and not await fits(tool, arguments, journal, runtime, host):
            logger.warning("call %r waits for code of version %r, to undo it", line, record.version)
            return False
        call = open_call(
            tool,
            arguments,
            journal,
            host=host,
            runtime=runtime,
            sink=discard,
            recorder=StoreRecorder(store, journal, lease),
        )
        try:
            async with call:
                await call.unwind(CallExpiredError(line))
        except CallExpiredError as expired:
            if problems := getattr(expired, "__notes__", []):
                logger.warning("call %r has expired; some undos failed: %s", line, problems)
            else:
                logger.info("call %r has expired; all its steps are undone", line)
        return not journal.compensations


async def _ended(tasks: Collection[asyncio.Task[bool]]) -> None:
    await asyncio.wait(tasks)
