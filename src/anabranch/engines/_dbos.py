"""The engine on DBOS: queues in an existing Postgres, with delays, and a worker in this process.

Equal wakes are the same workflow. The body of a call is never a workflow, and a step of a call is
never a DBOS step: the journal records the call. A tool has one queue for each of its versions, to
which the workers with this version listen, and one for any version. The worker runs in DBOS's
threads and loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, WorkflowSerializationFormat

from anabranch._aio import Clock, SystemClock, cancel_and_wait, pause, run_every, run_shielded
from anabranch._durable import Advance, Backlog, Wake
from anabranch.engines._in_process import Advances, check_concurrency
from anabranch.errors import StoreError
from anabranch.stores import read_url, translated

logger: logging.Logger = logging.getLogger("anabranch.engines")

T = TypeVar("T")

RETRY = 1.0
"""Seconds until the next attempt when the database cannot be reached."""

RETAINED, PRUNED_AT_ONCE, PRUNE_EVERY = 3600.0, 1000, 10.0
"""Seconds for which finished wakes stay in DBOS's tables, wakes deleted together, seconds between."""

LOST = 86_400.0
"""Seconds after which the work of a wake that is not done counts as lost with its worker."""

WAITING, RUNNING = ["ENQUEUED", "DELAYED"], ["PENDING"]
"""DBOS's states of a waiting workflow, and of a running one."""


class DBOSEngine:
    """An engine whose workers share queues in Postgres, by DBOS; at most one worker per process.

    Args:
        url: the URL of the Postgres database.
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
        self._advances = Advances(self._clock)
        self._client: DBOSClient | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def wake(self, wake: Wake) -> None:
        """Request that a worker continues a call; see :meth:`Engine.wake`."""
        client, options = await self._connected(), options_of(wake, self._clock.now())
        enqueued = cast("Awaitable[object]", client.enqueue_async(options, asdict(wake)))
        await self._asking(enqueued)

    async def backlog(self) -> Backlog:
        """Return the number of waiting and running wakes."""
        waiting, running = await self._wakes(status=WAITING), await self._wakes(status=RUNNING)
        return Backlog(len(waiting), len(running))

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        """Run the worker's loop until cancelled; see :meth:`Engine.work`.

        Raises:
            StoreError: if the database cannot be reached, or this process has a worker already.
            ValueError: if ``concurrency`` is less than 1.
        """
        check_concurrency(concurrency)
        client = await self._connected()
        queues = await self._asking(register_queues(client, tools, concurrency))
        taking = DBOSWorker(lambda wake: self._advance(wake, advance), concurrency)
        async with taking.listening(self._url, self._schema, queues):
            await run_every(self._clock, PRUNE_EVERY, "delete old wakes", self._prune)

    async def close(self) -> None:
        """Close connections; a second call does nothing. Afterwards, other methods raise."""
        if not self._is_closed:
            self._is_closed = True
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

    async def _wake_surely(self, wake: Wake) -> None:
        while True:
            try:
                return await self.wake(wake)
            except StoreError as error:
                logger.warning("call %r was not woken: %s; trying again", wake.call, error)
            await pause(self._clock, RETRY)

    async def _prune(self) -> None:
        """Delete wakes that were done long ago, and wakes that a probably dead worker never did."""
        client, now = await self._connected(), self._clock.now()
        done: dict[str, Any] = {"completed_before": _as_iso(now - RETAINED)}
        lost: dict[str, Any] = {"status": RUNNING, "dequeued_before": _as_iso(now - LOST)}
        for old in (done, lost):
            while True:
                found = await self._wakes(**old, limit=PRUNED_AT_ONCE)
                if found:
                    await self._asking(client.delete_workflows_async(found))
                if len(found) < PRUNED_AT_ONCE:
                    break

    # -- the database ------------------------------------------------------------------------

    async def _connected(self) -> DBOSClient:
        if self._is_closed:
            raise StoreError("The engine is closed.")
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

    async def _wakes(self, **which: Any) -> list[str]:  # noqa: ANN401 - conditions of DBOS
        """Return the workflow ids of the wakes that meet DBOS's conditions ``which``."""
        client = await self._connected()
        listing = client.list_workflows_async(
            **which, name=WORKFLOW, load_input=False, load_output=False
        )
        return [each.workflow_id for each in await self._asking(listing)]

    async def _asking(self, request: Awaitable[T]) -> T:
        with translated(self._label, "engine's database"):
            return await request


def unwaited(url: sa.URL) -> str:
    """Return a store URL in libpq's form, for connections whose commits do not wait for the disk.

    After a crash of the server, a wake may come late, or come again: an engine may do both.
    """
    query = url.normalized_query
    options = (*query.get("options", ()), "-csynchronous_commit=off")
    texts = urlencode({**query, "options": " ".join(options)}, doseq=True, quote_via=quote)
    plain = url.set(drivername="postgresql", query={})
    return f"{plain.render_as_string(hide_password=False)}?{texts}"


def _as_iso(when: float) -> str:
    return datetime.fromtimestamp(when, UTC).isoformat()


POLL, POLL_VERSION = 0.1, 1.0
"""Seconds between two reads of a queue, and of a version's queue: DBOS does not announce wakes.

The wakes of a version's queue have already waited for such a worker.
"""

LONGEST, SHOWN = 500, 400
"""Maximum characters of a whole name, and the characters that remain of a longer name."""


def options_of(wake: Wake, now: float) -> EnqueueOptions:
    """Return the DBOS options that queue a wake; its workflow's name follows from the wake."""
    options = EnqueueOptions(
        workflow_name=WORKFLOW,
        queue_name=queue_of(wake.tool, wake.version),
        workflow_id=f"{_encoded(wake.call)}/{_encoded(wake.turn)}@{wake.not_before!r}",
        serialization_type=WorkflowSerializationFormat.PORTABLE,
    )
    if wake.not_before > now:
        options["delay_seconds"] = wake.not_before - now
    return options


async def register_queues(
    client: DBOSClient, tools: Mapping[str, str], concurrency: int
) -> list[str]:
    """Create the queues of ``tools``, or change their limit; return their names."""
    names: list[str] = []
    for tool, own in tools.items():
        for version in sorted({"", own}):
            names.append(queue_of(tool, version))
            await client.register_queue_async(
                names[-1],
                worker_concurrency=concurrency,
                polling_interval_sec=POLL_VERSION if version else POLL,
                on_conflict="always_update",
            )
    return names


def queue_of(tool: str, version: str) -> str:
    """Return the name of the queue for a version of a tool; an empty version means any."""
    return f"{APPLICATION}/{tool}/{version}"


def _encoded(name: str) -> str:
    """Return a name in ASCII, without the separators of a workflow id; different names stay different."""
    plain = quote(name, safe="", errors="surrogatepass")
    if len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()
    return f"{plain[:SHOWN]}%x{digest}"  # a quoted name has two capitals or digits after each %


APPLICATION = "anabranch"
WORKFLOW = "anabranch.advance"

_only_one = threading.Lock()


class DBOSWorker:
    """Takes wakes, and runs each of them, at most ``concurrency`` at the same time.

    A cancelled ``run`` makes sure that the wake comes again.
    """

    def __init__(self, run: Callable[[Wake], Awaitable[None]], concurrency: int) -> None:
        self._run = run
        self._slots = asyncio.Semaphore(concurrency)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(self, url: str, schema: str, queues: list[str]) -> AsyncGenerator[None]:
        """Take wakes from ``queues`` inside the block; then cancel running wakes."""
        if not _only_one.acquire(blocking=False):
            raise StoreError("This process already has a DBOS worker. Start another process.")
        try:
            await asyncio.to_thread(self._launch, url, schema, queues)
            yield
        finally:
            await run_shielded(self._end())
            _only_one.release()

    def _launch(self, url: str, schema: str, queues: list[str]) -> None:
        # DBOS takes no bound method.
        async def workflow(wake: dict[str, Any]) -> None:
            turn = self._in_turn(Wake(**wake))
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(turn, self._loop))

        DBOS.workflow(name=WORKFLOW)(workflow)
        DBOS(
            config=DBOSConfig(
                name=APPLICATION,
                system_database_url=url,
                # DBOS retries after a broken connection; with a pre-ping, its queues would ping constantly.
                db_engine_kwargs={"pool_pre_ping": False},
                dbos_system_schema=schema,
                application_version=APPLICATION,  # each version of a tool has its own queue
                executor_id=secrets.token_hex(6),  # DBOS recovers no work of an earlier process
                run_migrations=False,
                log_level="ERROR",
            )
        )
        DBOS.listen_queues(queues)
        DBOS.launch()

    async def _end(self) -> None:
        """Cancel the running wakes, including those that DBOS delivers while it ends."""
        await cancel_and_wait(list(self._tasks))
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
        await cancel_and_wait(list(self._tasks))

    async def _in_turn(self, wake: Wake) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        async with self._slots:
            await self._run(wake)
