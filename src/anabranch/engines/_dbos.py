"""The engine on DBOS: a queue in the Postgres that is there, with delays and limits.

A wake is a workflow of one line, whose name follows from the wake: the same wake is the same
workflow. The body of a call is never a workflow, and a step of a call never one of DBOS's: what
happens in a call, the journal says. A tool has a queue for each of its versions, which the workers
that have this version listen to. Limits are those of one queue, that of any version: where there are
some, what comes from the queue of a version is put there, and back if it meets another worker.

DBOS itself takes up the work of a dead machine only with a service of its maker. Here each worker
holds an advisory lock under its name; who finds the lock of another free, in several looks, takes up
what that one left.
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
from sqlalchemy.ext.asyncio import AsyncConnection

from anabranch._aio import Clock, SystemClock, pause, run_shielded
from anabranch._durable.engine import Advance, Backlog, Wake, WorkLimits
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
from anabranch.stores._database_faults import translated
from anabranch.stores._engines import read_url

logger: logging.Logger = logging.getLogger("anabranch.engines")

T = TypeVar("T")

TAKE_UP_EVERY = 2.0
"""Seconds from one look for dead workers to the next."""

RETRY = 1.0
"""Seconds until it is tried again where the database cannot be reached."""

RETAINED, PRUNED_AT_ONCE = 3600.0, 1000
"""Seconds for which wakes that are done stay in DBOS's tables, and how many are deleted at once."""

WAITING, RUNNING = ["ENQUEUED", "DELAYED"], ["PENDING"]
"""DBOS's states of a workflow that has not begun, and of one that has."""


class DBOSEngine:
    """An engine for any number of workers on the same Postgres. A process has one worker at most.

    Args:
        url: the database, as a store's URL names it.
        schema: the schema of DBOS's tables there. Applications with stores of their own that share
            a database have schemas of their own, too.
        clock: the time; by default, the system's.

    Raises:
        StoreError: if the URL is not Postgres's.
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

    async def wake(self, wake: Wake, *, within: object | None = None) -> None:
        """See :meth:`Engine.wake`; ``within`` is a connection of SQLAlchemy's in a transaction."""
        client, options = await self._connected(), options_of(wake, self._clock.now())

        def enqueue(connection: sa.Connection) -> None:
            client.enqueue_in_transaction(connection, options, asdict(wake))

        if isinstance(within, AsyncConnection):
            await within.run_sync(enqueue)
        elif isinstance(within, sa.Connection):
            enqueue(within)
        else:
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
        lock = f"anabranch every {self._schema}/{name}"  # a lock belongs to the whole database
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
        except asyncio.CancelledError:  # this worker ends, and the others take it
            # It begins after all that came meanwhile, so that it stands for them, too.
            following = [replace(wake, not_before=self._clock.now())]
        for each in following:
            await run_shielded(self._wake_surely(each))

    async def _moved(
        self, wake: Wake, tools: Mapping[str, str], limits: WorkLimits, *, is_counted: bool
    ) -> bool:
        """Put a wake into the queue in which it belongs; false if it comes from there."""
        is_ours = wake.version in {"", tools[wake.tool]}
        is_limited = limits.per_share is not None
        if is_ours and (is_counted or not wake.version or not is_limited):
            return False
        again = replace(wake, not_before=self._clock.now())
        await run_shielded(self._wake_surely(again, is_counted=is_ours))
        return True

    async def _wake_counted(self, wake: Wake) -> None:
        """Put a wake for a version where limits count: first, since it may meet others' workers."""
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
        """Put what dead workers had begun into its queue again, and delete what is long done."""
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
        # What fails is a StoreError. DBOS's own words come beside it, and before a worker sets its level.
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
            return False  # it is tried again

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("The engine is closed.")


def unwaited(url: sa.URL) -> str:
    """Return a store's URL as libpq reads it, for connections whose commits do not wait for the disk.

    If the server crashes, a wake that it has forgotten is late, and one whose end it has forgotten
    comes twice: an engine may do both, and no result changes.
    """
    query = url.normalized_query
    options = (*query.get("options", ()), "-csynchronous_commit=off")
    texts = urlencode({**query, "options": " ".join(options)}, doseq=True, quote_via=quote)
    plain = url.set(drivername="postgresql", query={})
    return f"{plain.render_as_string(hide_password=False)}?{texts}"


def _as_iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat()
