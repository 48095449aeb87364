"""The engine on DBOS: a queue in an existing Postgres, with delays and limits.

A wake is a workflow of one line, whose name follows from the wake: equal wakes are the same
workflow. The body of a call is never a workflow, and a step of a call is never a DBOS step: the
journal records the call. A tool has one queue for each of its versions; the workers with this
version listen to it. DBOS limits only single queues, so limits are those of one queue for any
version. With limits, a wake from the queue of a version moves to that queue, and back if a worker
with another version takes it.

DBOS recovers the work of a dead machine only with a service of its vendor. Here each worker holds
an advisory lock under its name. A worker that finds another's lock free, in several looks, takes
over that worker's wakes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode

import sqlalchemy as sa
from dbos import DBOS, DBOSClient

from anabranch._aio import Clock, SystemClock, pause, run_shielded
from anabranch._durable import Advance, Backlog, Wake, WorkLimits
from anabranch.engines._advances import Advances, run_job
from anabranch.engines._advisory_locks import AdvisoryLocks
from anabranch.engines._dbos_worker import (
    APPLICATION,
    WORKFLOW,
    DBOSWorker,
    options_of,
    queue_of,
    register_queues,
)
from anabranch.engines._living_workers import LivingWorkers
from anabranch.errors import StoreError
from anabranch.stores import read_url, translated

logger: logging.Logger = logging.getLogger("anabranch.engines")

T = TypeVar("T")

TAKE_UP_EVERY = 2.0
"""Seconds between two looks for dead workers."""

RETRY = 1.0
"""Seconds until the next attempt when the database cannot be reached."""

RETAINED, PRUNED_AT_ONCE = 3600.0, 1000
"""Seconds for which finished wakes stay in DBOS's tables, and the number deleted together."""

WAITING, RUNNING = ["ENQUEUED", "DELAYED"], ["PENDING"]
"""DBOS's states of a waiting workflow, and of a running one."""


class DBOSEngine:
    """An engine for any number of workers on the same Postgres. A process has at most one worker.

    Args:
        url: the database, as a store URL.
        schema: the schema of DBOS's tables. Applications that share a database but not a store need
            different schemas.
        clock: the time; by default, the system's.

    Raises:
        StoreError: if the URL is not a Postgres URL.
    """

    def __init__(self, url: str, *, schema: str = "dbos", clock: Clock | None = None) -> None:
        target = read_url(url)
        if target.kind != "postgresql":
            raise StoreError(f"DBOS needs a Postgres that its workers share, not {target.label}.")
        self._url = unwaited(target.url)
        self._label = target.label
        self._schema = schema
        self._clock = clock or SystemClock()
        self._locks = AdvisoryLocks(self._url)
        self._advances = Advances(self._clock)
        self._client: DBOSClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def wake(self, wake: Wake) -> None:
        """See :meth:`Engine.wake`."""
        client, options = await self._connected(), options_of(wake, self._clock.now())
        enqueued = cast("Awaitable[object]", client.enqueue_async(options, asdict(wake)))
        await self._asking(enqueued)

    async def backlog(self) -> Backlog:
        """See :meth:`Engine.backlog`."""
        client = await self._connected()

        async def count(states: list[str]) -> int:
            found = await self._asking(
                client.list_workflows_async(
                    name=WORKFLOW, status=states, load_input=False, load_output=False
                )
            )
            return len(found)

        return Backlog(await count(WAITING), await count(RUNNING))

    async def work(
        self, tools: Mapping[str, str], advance: Advance, limits: WorkLimits
    ) -> NoReturn:
        """See :meth:`Engine.work`.

        Raises:
            StoreError: if the database cannot be reached, or this process has a worker already.
        """
        client = await self._connected()
        worker = f"{APPLICATION}-{secrets.token_hex(8)}"
        queues = await self._asking(register_queues(client, tools, limits))
        living = LivingWorkers(self._locks, worker)
        if not await living.enter():
            raise StoreError(f"No lock could be taken in {self._label}.")
        taking = DBOSWorker(
            lambda wake: self._advance(wake, advance),
            lambda wake, is_counted: self._moved(wake, tools, limits, is_counted=is_counted),
            limits.concurrency,
        )
        try:
            async with taking.listening(self._url, self._schema, worker, queues):
                while True:
                    await run_job("the work of dead workers", lambda: self._take_up(worker, living))
                    await pause(self._clock, TAKE_UP_EVERY)
        finally:
            await self._locks.unlock(worker)

    async def every(
        self, name: str, seconds: float, job: Callable[[], Awaitable[object]]
    ) -> NoReturn:
        """See :meth:`Engine.every`; the holder of the job's advisory lock runs it."""
        self._check_open()
        lock = f"anabranch every {self._schema}/{name}"  # a lock covers the whole database
        while True:
            if await self._is_locked(lock):
                try:
                    while await self._locks.holds(lock):
                        await run_job(name, job)
                        await pause(self._clock, seconds)
                except StoreError as error:
                    logger.warning("%s: not done this time: %s", name, error)
                finally:
                    await self._locks.unlock(lock)
            await pause(self._clock, seconds)

    async def close(self) -> None:
        """See :meth:`Engine.close`."""
        if not self._is_closed:
            self._is_closed = True
            await self._locks.close()
            if self._client is not None:
                await asyncio.to_thread(self._client.destroy)

    # -- wakes and workers -------------------------------------------------------------------

    async def _advance(self, wake: Wake, advance: Advance) -> None:
        try:
            following = await self._advances.run_due(wake, advance)
        except asyncio.CancelledError:  # this worker ends, and another takes the wake
            # This wake begins after all that came meanwhile, so it stands for them.
            following = [replace(wake, not_before=self._clock.now())]
        for each in following:
            await run_shielded(self._wake_surely(each))

    async def _moved(
        self, wake: Wake, tools: Mapping[str, str], limits: WorkLimits, *, is_counted: bool
    ) -> bool:
        """Put a wake into the queue that it belongs to; return false if it comes from there."""
        is_ours = wake.version in {"", tools[wake.tool]}
        is_limited = limits.per_share is not None
        if is_ours and (is_counted or not wake.version or not is_limited):
            return False
        again = replace(wake, not_before=self._clock.now())
        await run_shielded(self._wake_surely(again, is_counted=is_ours))
        return True

    async def _wake_counted(self, wake: Wake) -> None:
        """Put a wake for a version into the queue of any version, whose limits count."""
        client, options = await self._connected(), options_of(wake, self._clock.now())
        options["queue_name"] = queue_of(wake.tool, "")
        options["workflow_id"] = f"{options.get('workflow_id')}/counted"
        enqueued = cast(
            "Awaitable[object]", client.enqueue_async(options, asdict(wake), is_counted=True)
        )
        await self._asking(enqueued)

    async def _wake_surely(self, wake: Wake, *, is_counted: bool = False) -> None:
        while True:
            try:
                return await (self._wake_counted(wake) if is_counted else self.wake(wake))
            except StoreError as error:
                logger.warning("call %r was not woken: %s; trying again", wake.call, error)
            await pause(self._clock, RETRY)

    async def _take_up(self, worker: str, living: LivingWorkers) -> None:
        """Queue the running wakes of dead workers again, and delete old finished wakes."""
        client = await self._connected()
        if not await living.enter():
            return
        begun = await self._asking(
            client.list_workflows_async(
                name=WORKFLOW, status=RUNNING, load_input=False, load_output=False
            )
        )
        of_others: defaultdict[str, defaultdict[str | None, list[str]]]
        of_others = defaultdict(lambda: defaultdict(list))
        for each in begun:
            if each.executor_id and each.executor_id != worker:
                of_others[each.executor_id][each.queue_name].append(each.workflow_id)
        living.look_at(of_others)
        for other, by_queue in of_others.items():
            async with living.is_dead(other) as is_dead:
                for queue, ids in by_queue.items() if is_dead else ():
                    await self._asking(client.resume_workflows_async(ids, queue_name=queue))
                    logger.warning("%d wakes of a worker that has died come again", len(ids))
        await self._prune(client)

    async def _prune(self, client: DBOSClient) -> None:
        before = _as_iso(self._clock.now() - RETAINED)
        done = await self._asking(
            client.list_workflows_async(
                name=WORKFLOW,
                completed_before=before,
                limit=PRUNED_AT_ONCE,
                load_input=False,
                load_output=False,
            )
        )
        if done:
            ids = [each.workflow_id for each in done]
            await self._asking(client.delete_workflows_async(ids))

    # -- the database ------------------------------------------------------------------------

    async def _connected(self) -> DBOSClient:
        self._check_open()
        async with self._opening:
            if self._client is None:
                self._client = await self._asking(asyncio.to_thread(self._connect))
            return self._client

    def _connect(self) -> DBOSClient:
        # A failure raises StoreError. DBOS logs it as well, before a worker sets the level.
        logging.getLogger("dbos").setLevel(logging.ERROR)
        DBOS.migrate(self._url, schema=self._schema)
        return DBOSClient(
            system_database_url=self._url,
            dbos_system_schema=self._schema,
            application_name=APPLICATION,
            retry_connection_errors=False,
        )

    async def _asking(self, request: Awaitable[T]) -> T:
        with translated(self._label, "engine's database"):
            return await request

    async def _is_locked(self, lock: str) -> bool:
        try:
            return await self._locks.try_lock(lock)
        except StoreError:
            return False  # the caller tries again

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The engine is closed.")


def unwaited(url: sa.URL) -> str:
    """Return a store URL in libpq's form, for connections whose commits do not wait for the disk.

    After a crash of the server, a wake may come late, or a finished wake may come again. An engine
    may do both, and no result changes.
    """
    query = url.normalized_query
    options = (*query.get("options", ()), "-csynchronous_commit=off")
    texts = urlencode({**query, "options": " ".join(options)}, doseq=True, quote_via=quote)
    plain = url.set(drivername="postgresql", query={})
    return f"{plain.render_as_string(hide_password=False)}?{texts}"


def _as_iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat()
