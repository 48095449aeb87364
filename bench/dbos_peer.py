"""DBOS as a peer: the flow of ``sagas.py`` as DBOS workflows, on a given database.

No other module imports DBOS. Only ``make bench`` installs DBOS, and the type checkers run without it, so
this module imports DBOS by name.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

__all__ = ["Peer", "dbos_on"]

TOPIC = "answers"


@dataclass(frozen=True, slots=True)
class Peer:
    """The measured flows on DBOS.

    Attributes:
        messages: run one workflow that takes each answer as a message and makes a step of it.
        steps: run one workflow of this number of steps, without messages.
    """

    messages: Callable[[], Awaitable[object]]
    steps: Callable[[], Awaitable[object]]


@asynccontextmanager
async def dbos_on(
    url: str, answers: Sequence[str], work: Callable[[str], Awaitable[str]]
) -> AsyncGenerator[Peer]:
    """Run DBOS on the database at ``url``; each flow does ``work`` on ``answers``, step by step."""
    package: Any = importlib.import_module("dbos")
    dbos = package.DBOS
    dbos(
        config={
            "name": "bench",
            "system_database_url": url,
            "log_level": "CRITICAL",
            # Where DBOS must poll, the default interval is a second.
            "notification_listener_polling_interval_sec": 0.001,
        }
    )
    step = dbos.step()(work)

    async def by_messages() -> str:
        done = [await step(await dbos.recv_async(TOPIC, timeout_seconds=60)) for _ in answers]
        return " ".join(done)

    async def by_steps() -> str:
        return " ".join([await step(answer) for answer in answers])

    asking, plain = dbos.workflow()(by_messages), dbos.workflow()(by_steps)
    ids = count()

    async def messages() -> None:
        # All answers are sent at the start, so that no turn waits for a question.
        with package.SetWorkflowID(f"messages-{next(ids)}"):
            handle = await dbos.start_workflow_async(asking)
        for answer in answers:
            await dbos.send_async(handle.workflow_id, answer, TOPIC)
        await handle.get_result(polling_interval_sec=0.001)

    async def steps() -> None:
        with package.SetWorkflowID(f"steps-{next(ids)}"):
            handle = await dbos.start_workflow_async(plain)
        await handle.get_result(polling_interval_sec=0.001)

    dbos.launch()
    try:
        yield Peer(messages, steps)
    finally:
        dbos.destroy(destroy_registry=True)
