"""A check of an engine, with DBOS, in a process of its own: ``python -m tests.engines.dbos_process``.

DBOS is one per process, and what it takes in the moment in which it ends, it leaves behind.
"""

import asyncio
import sys
from functools import partial

from anabranch.engines import DBOSEngine, Wake
from tests.suites.engine_checks import ENGINE_CHECKS, EngineCheck
from tests.suites.engine_samples import OpenEngine


async def work(url: str, schema: str) -> None:
    """Be a worker of one call at a time, which writes the name of each call."""
    engine = DBOSEngine(url, schema=schema)

    async def advance(wake: Wake) -> None:
        sys.stdout.write(f"begun {wake.call}\n")
        sys.stdout.flush()

    await engine.work({"a": "1"}, advance, 1)


def main() -> None:
    name, url, schema = sys.argv[1:4]
    if name == "work":
        asyncio.run(work(url, schema))
    [check] = [each for each in ENGINE_CHECKS if each.__name__ == name]
    asyncio.run(_run(check, partial(DBOSEngine, url, schema=schema)))


async def _run(check: EngineCheck, open_engine: OpenEngine) -> None:
    await check(open_engine)


if __name__ == "__main__":
    main()
