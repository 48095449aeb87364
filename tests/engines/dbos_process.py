"""Runs a check of an engine with DBOS in a separate process: ``python -m tests.engines.dbos_process``.

A process can run one DBOS. A wake that DBOS takes while it ends stays behind.
"""

import asyncio
import sys
from functools import partial

from anabranch.engines import DBOSEngine, Wake
from tests.suites.engine_checks import ENGINE_CHECKS, EngineCheck
from tests.suites.engine_samples import OpenEngine


async def work(url: str, schema: str) -> None:
    """Work as a worker of one call at a time, which prints the name of each call."""
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
