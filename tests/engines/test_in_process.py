"""The engine in this process: the order in which its workers take wakes."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from anabranch.engines import InProcessEngine, Wake, WorkLimits
from tests.suites.engine_samples import Changes, a_wake, working


async def test_a_worker_takes_the_wake_of_the_user_with_the_fewest_running() -> None:
    engine, begun, changes = InProcessEngine(), list[str](), Changes()
    ends = defaultdict[str, asyncio.Event](asyncio.Event)

    async def advance(wake: Wake) -> None:
        begun.append(wake.call)
        changes.report()
        await ends[wake.call].wait()

    for number in range(4):
        await engine.wake(a_wake(f"much{number}", share="much"))
    await engine.wake(a_wake("little", share="little"))
    async with working(engine, advance, limits=WorkLimits(concurrency=3)):
        await changes.until(lambda: len(begun) == 3, "as many as the worker may")
        assert sorted(begun) == ["little", "much0", "much1"]
        ends["little"].set()
        await changes.until(lambda: begun[3:] == ["much2"], "no other user waits")
