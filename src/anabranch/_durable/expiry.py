"""Calls that nobody continues: what they did is undone, and in the end they are forgotten.

Owns one pass over the store and its repetition. How a call is run and what it owes is known
elsewhere; here is only decided that its time has come.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from anabranch._asking.host import Capabilities, Host
from anabranch._durable.entry_text import StoreRecorder, answers_id
from anabranch._durable.lease import Lease
from anabranch._durable.replies import Durability, latest_journal
from anabranch._durable.service import CallService
from anabranch._durable.store import CallRecord
from anabranch._engine import Notice
from anabranch._engine.clock import pause
from anabranch._opening import open_call
from anabranch.errors import AnabranchError, StoreError, ToolError
from anabranch.tool import Tool

__all__ = ["EVERY", "Sweeper"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

EVERY = 30.0
"""Seconds from one pass to the next."""

AT_ONCE = 100
"""Calls that are looked at, or ended, together."""

PATIENCE = 60.0
"""Seconds that a pass waits for undos. One that takes longer goes on, and keeps nothing else."""


class Sweeper:
    """Undoes the calls of ``tools`` that have been left alone for too long.

    Any number of processes may sweep one store.

    Args:
        calls: has the store, and time.
        tools: by name; calls of other tools are left for whoever has them.
        patience: seconds that a pass waits for undos.
    """

    def __init__(
        self, calls: CallService, tools: Mapping[str, Tool[Any]], *, patience: float = PATIENCE
    ) -> None:
        if calls.durability is None:
            raise ValueError("Without a store there is nothing to sweep.")
        self._calls = calls
        self._policy: Durability = calls.durability
        self._tools = tools
        self._patience = patience
        self._ending: dict[str, asyncio.Task[bool]] = {}

    async def run(self) -> NoReturn:
        """Sweep again and again, until cancelled."""
        while True:
            try:
                await self.sweep()
            except StoreError as error:
                logger.warning("no sweep this time: %s", error)
            except Exception:
                # Whatever it was: without another pass, what calls owe would never be paid.
                logger.exception("a sweep broke off")
            await pause(self._calls.runtime.clock, EVERY)

    async def sweep(self) -> int:
        """Make one pass; return how many calls were ended in it.

        What goes wrong with one call is logged, and keeps no other from being ended.

        Raises:
            StoreError: the store does not answer.
        """
        store, now = self._policy.store, self._calls.runtime.clock.now()
        ended, seen, limit = 0, set(self._ending), AT_ONCE
        while True:
            overdue = await store.abandoned(now, limit)
            new = [record for record in overdue if record.call_id not in seen]
            seen.update(record.call_id for record in new)
            ours = [record for record in new if record.tool in self._tools]
            for start in range(0, len(ours), AT_ONCE):
                ended += await self._end_all(ours[start : start + AT_ONCE])
            if len(overdue) < limit:
                break
            # Calls that others run, or that only others know, come first again: look behind them.
            limit *= 2
        while await store.prune(now, AT_ONCE) == AT_ONCE:
            pass
        return ended

    async def _end_all(self, records: Sequence[CallRecord]) -> int:
        """End calls at once; return how many were ended before patience ran out."""
        running = [asyncio.ensure_future(self._try_to_end(record)) for record in records]
        for record, task in zip(records, running, strict=True):
            self._ending[record.call_id] = task
            task.add_done_callback(partial(self._forget, record.call_id))
        if not running:
            return 0
        try:
            done, late = await asyncio.wait(running, timeout=self._patience)
        except asyncio.CancelledError:
            for task in running:
                task.cancel()
            raise
        if late:
            logger.warning("the undos of %d calls take long; they go on", len(late))
        return sum(task.result() for task in done)

    def _forget(self, line: str, _: object) -> None:
        del self._ending[line]

    async def _try_to_end(self, record: CallRecord) -> bool:
        try:
            return await self._end(record, self._tools[record.tool])
        except StoreError as error:
            logger.warning("call %r was not undone this time: %s", record.call_id, error)
        except Exception:
            # A tool's check of arguments is its author's code: others' undos must not wait for it.
            logger.exception("call %r was not undone this time", record.call_id)
        return False

    async def _end(self, record: CallRecord, tool: Tool[Any]) -> bool:
        clock, policy = self._calls.runtime.clock, self._policy
        worker, line = self._calls.worker, record.call_id
        async with Lease(policy.store, line, clock, worker=worker, seconds=policy.lease) as lease:
            if not await lease.take():
                return False  # somebody runs it just now
            known = await policy.store.find(line)
            if known is None or known.status != "open" or known.deadline > clock.now():
                return False
            if await self._undo(record, tool, lease):
                keep = clock.now() + policy.keep
                return await policy.store.finish(line, "abandoned", deadline=keep)
            later = clock.now() + policy.retry_undo_after
            await policy.store.finish(line, "open", deadline=later)
            return False

    async def _undo(self, record: CallRecord, tool: Tool[Any], lease: Lease) -> bool:
        """Pay what the call owes; whether nothing is left."""
        store, line = self._policy.store, record.call_id
        try:
            journal = await latest_journal(store, record)
            arguments = tool.validate(json.loads(record.arguments))
        except (ValueError, AnabranchError) as problem:
            logger.error("call %r cannot be undone: %s", line, problem)  # noqa: TRY400 - that is all
            return False
        if not journal.compensations:
            return True
        given = (await store.entries(line, journal.rounds)).get(answers_id(journal.rounds), "{}")
        call = open_call(
            tool,
            arguments,
            journal,
            host=Host(Capabilities()),
            runtime=self._calls.runtime,
            sink=_nowhere,
            recorder=StoreRecorder(store, line, journal.rounds, given, lease.check),
        )
        try:
            async with call:
                await call.unwind(ToolError("The call was abandoned."))
        except ToolError as abandoned:
            problems = getattr(abandoned, "__notes__", [])
            logger.info("call %r was abandoned, and is undone: %s", line, problems or "all of it")
        return not journal.compensations


async def _nowhere(notice: Notice) -> None:
    """Nobody listens to a call that is undone."""
    await asyncio.sleep(0)
    logger.debug("not delivered: %s", notice)
