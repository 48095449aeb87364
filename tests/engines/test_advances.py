"""Wakes that arrive during an advance of their call are not taken from the queue again."""

import asyncio

import pytest

from anabranch.engines import Wake
from anabranch.engines._in_process import Advances
from anabranch.errors import StoreError
from anabranch.testing import ManualClock
from tests.suites.engine_samples import Worker, a_wake
from tests.telemetry import Collected


async def test_wakes_during_an_advance_share_one_more_advance() -> None:
    advances, worker = Advances(ManualClock()), Worker(is_open=False)
    first = asyncio.create_task(advances.run_due(a_wake("c", "0"), worker.advance))
    await worker.until_times("c", 1, "it begins")
    for turn in ("1", "2"):
        assert await advances.run_due(a_wake("c", turn), worker.advance) == []
    worker.gate.set()
    assert await first == []
    assert [wake.turn for wake in worker.begun] == ["0", "2"]


async def test_the_same_wake_during_an_advance_is_done_but_not_another_time() -> None:
    clock = ManualClock()
    advances, worker = Advances(clock), Worker(is_open=False)
    first = asyncio.create_task(advances.run(a_wake("c", "0"), worker.advance))
    await worker.until_times("c", 1, "it begins")
    for not_before in (0.0, 1.0):
        assert await advances.run(a_wake("c", "0", not_before=not_before), worker.advance) == []
    worker.gate.set()
    assert await first == [a_wake("c", "0", not_before=clock.now())]


@pytest.mark.parametrize("error", [ValueError("once"), StoreError("out of reach")])
async def test_a_failed_advance_is_left_for_later(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock, worker = ManualClock(), Worker()
    worker.failing["c"] = [error]
    [again] = await Advances(clock).run_due(Wake("c", "0", "a"), worker.advance)
    assert (again.turn, again.not_before > clock.now()) == ("0", True)
    [logged] = caplog.records
    assert logged.getMessage().startswith("call 'c' was not advanced")
    has_sentence = logged.getMessage().endswith(f": {error}")
    assert (has_sentence, not logged.exc_info) == (isinstance(error, StoreError),) * 2


async def test_a_failed_wake_is_reported_without_its_caller(collected: Collected) -> None:
    async def fail(_: Wake) -> None:
        raise ValueError("secret")

    [again] = await Advances(ManualClock()).run(Wake("c", "0", "t", trace="none"), fail)
    assert again.trace == "none"
    wake = collected.one("wake")
    assert (wake.links, wake.attributes["error.type"]) == ((), "ValueError")
