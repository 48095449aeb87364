"""A worker of DBOS in this process: it takes wakes from queues, in threads and a loop of DBOS's own.

DBOS is one per process, with a registry of its own; so is this. What it takes is done in the loop
in which the worker was begun.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, WorkflowSerializationFormat

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._durable.engine import Wake, WorkLimits
from anabranch.errors import StoreError

POLL, POLL_VERSION = 0.1, 1.0
"""Seconds from one look into a queue to the next; DBOS has no other way to notice a wake.

The second is for the queue of a version: what waits there has waited for such a worker.
"""

LONGEST, SHOWN = 500, 400
"""Characters of a name that stays whole, and characters that stay of a longer name."""


def options_of(wake: Wake, now: float) -> EnqueueOptions:
    """Return how a wake is put into its queue; its name follows from the wake."""
    options = EnqueueOptions(
        workflow_name=WORKFLOW,
        queue_name=queue_of(wake.tool, wake.version),
        workflow_id=f"{_encoded(wake.call)}/{_encoded(wake.turn)}@{wake.not_before!r}",
        queue_partition_key=_encoded(wake.share) or "-",
        serialization_type=WorkflowSerializationFormat.PORTABLE,
    )
    if wake.not_before > now:
        options["delay_seconds"] = wake.not_before - now
    return options


async def register_queues(
    client: DBOSClient, tools: Mapping[str, str], limits: WorkLimits
) -> list[str]:
    """Create the queues of ``tools``, or give them these limits; return their names.

    The queue of any version has the limits: DBOS knows none of several queues together.
    """
    names: list[str] = []
    for tool, own in tools.items():
        for version in sorted({"", own}):
            names.append(queue_of(tool, version))
            await client.register_queue_async(
                names[-1],
                worker_concurrency=limits.concurrency,
                partition_concurrency=None if version else limits.per_share,
                polling_interval_sec=POLL_VERSION if version else POLL,
                on_conflict="always_update",
            )
    return names


def queue_of(tool: str, version: str) -> str:
    """Return the name of the queue for a version of a tool; for any version, if that is empty."""
    return f"{APPLICATION}/{tool}/{version}"


def _encoded(name: str) -> str:
    """Return a name in ASCII, without the separators of a workflow's id; names stay different.

    A digest stands for the rest of a name that is too long for a key of Postgres.
    """
    plain = quote(name, safe="", errors="surrogatepass")
    if len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()
    return f"{plain[:SHOWN]}%x{digest}"  # a quoted name has two capitals or digits after each %


APPLICATION = "anabranch"
WORKFLOW = "anabranch.advance"

_only_one = threading.Lock()


class DBOSWorker:
    """Takes wakes, and has each of them run.

    Args:
        run: runs a wake, in the loop in which the worker began. If it is cancelled, it sees to it
            that the wake comes again.
        moved: whether it has put a wake into another queue instead, where it belongs; it is asked
            with whether the wake came from a queue whose limits count for it.
        concurrency: how many run at the same time.
    """

    def __init__(
        self,
        run: Callable[[Wake], Awaitable[None]],
        moved: Callable[[Wake, bool], Awaitable[bool]],
        concurrency: int,
    ) -> None:
        self._run = run
        self._moved = moved
        self._slots = asyncio.Semaphore(concurrency)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(
        self, url: str, schema: str, name: str, queues: list[str]
    ) -> AsyncGenerator[None]:
        """Take wakes from ``queues``, under this name, inside the block.

        What runs at its end is cancelled.

        Raises:
            StoreError: this process has a worker already.
        """
        if not _only_one.acquire(blocking=False):
            raise StoreError("This process has a worker of DBOS already; begin another process.")
        try:
            await asyncio.to_thread(self._launch, url, schema, name, queues)
            yield
        finally:
            await run_shielded(self._end())
            _only_one.release()

    def _launch(self, url: str, schema: str, name: str, queues: list[str]) -> None:
        # DBOS takes no bound method
        async def workflow(wake: dict[str, Any], *, is_counted: bool = False) -> None:
            turn = self._in_turn(Wake(**wake), is_counted=is_counted)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(turn, self._loop))

        DBOS.workflow(name=WORKFLOW)(workflow)
        DBOS(
            config=DBOSConfig(
                name=APPLICATION,
                system_database_url=url,
                # It repeats what fails with a connection; its queues would test theirs all the time.
                db_engine_kwargs={"pool_pre_ping": False},
                dbos_system_schema=schema,
                application_version=APPLICATION,  # versions of tools have queues of their own
                executor_id=name,
                run_migrations=False,
                log_level="ERROR",
            )
        )
        DBOS.listen_queues(queues)
        DBOS.launch()

    async def _end(self) -> None:
        """Cancel what runs, also what DBOS brings while it ends."""
        await cancel_and_wait(list(self._tasks))
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
        await cancel_and_wait(list(self._tasks))

    async def _in_turn(self, wake: Wake, *, is_counted: bool) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not await self._moved(wake, is_counted):
            async with self._slots:
                await self._run(wake)
