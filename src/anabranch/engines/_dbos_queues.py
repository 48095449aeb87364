"""Wakes in DBOS's terms: in which queue each waits, under which name, and with which limits.

A tool has a queue for each of its versions, and one for any, which has the limits.
"""

from __future__ import annotations

from collections.abc import Mapping

from dbos import DBOSClient, EnqueueOptions, WorkflowSerializationFormat

from anabranch._durable.engine import Wake, WorkLimits
from anabranch.engines._dbos_worker import APPLICATION, WORKFLOW
from anabranch.engines._names import shortened

POLL, POLL_VERSION = 0.1, 1.0
"""Seconds from one look into a queue to the next; DBOS has no other way to notice a wake.

The second is for the queue of a version: what waits there has waited for such a worker.
"""


def options_of(wake: Wake, now: float) -> EnqueueOptions:
    """Return how a wake is put into its queue; its name follows from the wake."""
    options = EnqueueOptions(
        workflow_name=WORKFLOW,
        queue_name=queue_of(wake.tool, wake.version),
        workflow_id=f"{shortened(wake.call)}/{shortened(wake.turn)}@{wake.not_before!r}",
        queue_partition_key=shortened(wake.share) or "-",
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
