"""DBOS alone, as a peer of ``engines.py``: the calls of ``engine_processes.py`` as workflows by hand.

A question is an event of the workflow, an answer is a message to the workflow, and an effect is a step.
This is the way in which DBOS's documentation lets a workflow wait for a user. Events and messages reach
the other side by NOTIFY.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter_ns

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from bench.engine_processes import QUESTIONS, act, until_closed, workers

__all__ = ["PlayedByHand", "dbos_by_hand"]

APPLICATION, WORKFLOW, QUEUE, ANSWERS = "by-hand", "journey", "journeys", "answers"
SCHEMA = "by_hand"
LONG = 600.0
"""Seconds for which a user may be silent."""

POLL = 0.1
"""Seconds from one look into the queue to the next, as our adapter has it."""


def work_by_hand(url: str, connection: Connection) -> None:
    """The main function of a worker process."""
    step = DBOS.step()(act)

    @DBOS.workflow(name=WORKFLOW)
    async def journey() -> None:
        acted = 0
        for number in range(QUESTIONS):
            await DBOS.set_event_async(f"question {number}", acted)
            await DBOS.recv_async(ANSWERS, timeout_seconds=LONG)
            acted = await step(0.0)
        await DBOS.set_event_async(f"question {QUESTIONS}", acted)

    DBOS(
        config=DBOSConfig(
            name=APPLICATION,
            system_database_url=url,
            dbos_system_schema=SCHEMA,
            application_version=APPLICATION,
            run_migrations=False,
            log_level="ERROR",
        )
    )
    DBOS.listen_queues([QUEUE])
    DBOS.launch()
    asyncio.run(until_closed(connection))
    DBOS.destroy(destroy_registry=True)


class PlayedByHand:
    """Plays calls as their users.

    Args:
        client: reaches the workers.
    """

    def __init__(self, client: DBOSClient) -> None:
        self._client = client

    async def play(self, name: str) -> list[float]:
        """Play one call; return the seconds from each answer to its effect."""
        options = EnqueueOptions(workflow_name=WORKFLOW, queue_name=QUEUE, workflow_id=name)
        await self._client.enqueue_async(options)
        late: list[float] = []
        sent = 0
        for number in range(QUESTIONS + 1):
            acted = await self._client.get_event_async(name, f"question {number}", LONG)
            if number:
                late.append((acted - sent) / 1e9)
            if number < QUESTIONS:
                sent = perf_counter_ns()
                await self._client.send_async(name, "yes", ANSWERS)
        return late


@asynccontextmanager
async def dbos_by_hand(url: str, number: int) -> AsyncGenerator[tuple[PlayedByHand, list[int]]]:
    """Start workers on the database at ``url``; yield the player of calls, and the workers."""
    await asyncio.to_thread(DBOS.migrate, url, schema=SCHEMA)
    client = await asyncio.to_thread(
        partial(
            DBOSClient,
            system_database_url=url,
            dbos_system_schema=SCHEMA,
            application_name=APPLICATION,
            use_listen_notify=True,
        )
    )
    try:
        await client.register_queue_async(QUEUE, polling_interval_sec=POLL)
        async with workers(number, partial(work_by_hand, url)) as pids:
            yield PlayedByHand(client), pids
    finally:
        await asyncio.to_thread(client.destroy)
