"""The engine on DBOS: a queue in an existing Postgres, with delays.

Equal wakes are the same workflow. The body of a call is never a workflow, and a step of a call is
never a DBOS step: the journal records the call. A tool has one queue for each of its versions, to
which the workers with this version listen, and one for any version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode

import sqlalchemy as sa
from dbos import DBOS, DBOSClient

from anabranch._aio import Clock, SystemClock, pause, run_every, run_shielded
from anabranch._durable import Advance, Backlog, Wake
from anabranch.engines._advances import Advances, check_concurrency
from anabranch.engines._dbos_worker import (
    APPLICATION,
    WORKFLOW,
    DBOSWorker,
    options_of,
    register_queues,
)
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
        """Return the open work of the engine."""
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
