"""A worker of DBOS in this process: it takes wakes from queues, in DBOS's threads and loop."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions, WorkflowSerializationFormat

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._durable import Wake
from anabranch.errors import StoreError

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
