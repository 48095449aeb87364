"""The suite for engines finds broken promises: each saboteur breaks one."""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn, cast

import pytest

from anabranch.engines import Advance, Backlog, Engine, InProcessEngine, Wake
from tests.stores.sabotage import Forwarding
from tests.suites import engine_checks as suite
from tests.suites import engine_limit_checks as limits
from tests.suites import engine_samples as samples
from tests.suites.engine_checks import ENGINE_CHECKS, EngineCheck


class Saboteur(Forwarding):
    def __init__(self) -> None:
        self.good: InProcessEngine = InProcessEngine()


class Advancing(Saboteur):
    """A saboteur whose worker handles wakes wrongly."""

    async def advance(self, wake: Wake, advance: Advance) -> None:
        await advance(wake)

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        await self.good.work(tools, lambda wake: self.advance(wake, advance), concurrency)


class LosesWakes(Saboteur):
    async def wake(self, wake: Wake) -> None:
        pass


class MultipliesWakes(Saboteur):
    async def wake(self, wake: Wake) -> None:
        for copy in range(4):
            await self.good.wake(replace(wake, turn=f"{wake.turn}.{copy}"))


class ComparesTurnsOnly(Saboteur):
    def __init__(self) -> None:
        super().__init__()
        self.known: set[tuple[str, str]] = set()

    async def wake(self, wake: Wake) -> None:
        if (wake.call, wake.turn) not in self.known:
            self.known.add((wake.call, wake.turn))
            await self.good.wake(wake)


class AdvancesACallTwiceAtOnce(Advancing):
    async def wake(self, wake: Wake) -> None:
        await self.good.wake(replace(wake, call=f"{wake.call}/{wake.turn}"))

    async def advance(self, wake: Wake, advance: Advance) -> None:
        await advance(replace(wake, call=wake.call.partition("/")[0]))


class TakesFailuresForDone(Advancing):
    async def advance(self, wake: Wake, advance: Advance) -> None:
        with suppress(ValueError):
            await advance(wake)


class LosesWhatIsInterrupted(Advancing):
    async def advance(self, wake: Wake, advance: Advance) -> None:
        with suppress(asyncio.CancelledError):
            await advance(wake)


class TakesNoControlCharacters(Saboteur):
    async def wake(self, wake: Wake) -> None:
        await self.good.wake(replace(wake, call=re.sub(r"[\x00-\x1f]", "", wake.call)))


class CutsLongNames(Saboteur):
    async def wake(self, wake: Wake) -> None:
        await self.good.wake(replace(wake, call=wake.call[:100]))


class AdvancesACallOnce(Advancing):
    advanced: set[str] = set()  # noqa: RUF012 - also of engines that are opened later

    async def advance(self, wake: Wake, advance: Advance) -> None:
        if wake.call not in self.advanced:
            self.advanced.add(wake.call)
            await advance(wake)


class TakesAnyTool(Saboteur):
    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        await self.good.work({**tools, "missing": "1"}, advance, concurrency)


class TakesAnyVersion(Saboteur):
    async def wake(self, wake: Wake) -> None:
        await self.good.wake(replace(wake, version=""))


class Unlimited(Saboteur):
    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        await self.good.work(tools, advance, 1000)


class WaitsForUsers(Advancing):
    async def advance(self, wake: Wake, advance: Advance) -> None:
        await advance(wake)
        await asyncio.get_running_loop().create_future()


class CountsWhatIsDue(Saboteur):
    def __init__(self) -> None:
        super().__init__()
        self.later = 0

    async def wake(self, wake: Wake) -> None:
        self.later += wake.not_before > 0
        await self.good.wake(wake)

    async def backlog(self) -> Backlog:
        backlog = await self.good.backlog()
        return replace(backlog, waiting=backlog.waiting - self.later)


class CountsNothingThatRuns(Saboteur):
    async def backlog(self) -> Backlog:
        return replace(await self.good.backlog(), running=0)


class WorksWhenClosed(Saboteur):
    async def close(self) -> None:
        pass


SABOTEURS: list[tuple[type[Saboteur], EngineCheck]] = [
    (LosesWakes, suite.a_wake_is_advanced),
    (MultipliesWakes, suite.the_same_wake_is_one_wake),
    (AdvancesACallTwiceAtOnce, suite.a_call_is_advanced_again_if_it_is_woken_meanwhile),
    (AdvancesACallOnce, suite.a_call_is_advanced_again_if_it_is_woken_meanwhile),
    (ComparesTurnsOnly, suite.a_wake_with_another_time_is_another_wake),
    (TakesFailuresForDone, suite.a_failed_advance_is_retried),
    (LosesWhatIsInterrupted, suite.an_interrupted_advance_is_retried),
    (TakesNoControlCharacters, suite.any_text_may_name_a_call_or_wake),
    (CutsLongNames, suite.any_text_may_name_a_call_or_wake),
    (AdvancesACallOnce, suite.an_advanced_call_can_be_woken_again),
    (WorksWhenClosed, suite.periodic_work_finds_a_call_without_a_wake),
    (AdvancesACallOnce, suite.a_restored_engine_continues),
    (TakesAnyTool, limits.a_worker_takes_only_its_tools_and_versions),
    (TakesAnyVersion, limits.a_worker_takes_only_its_tools_and_versions),
    (Unlimited, limits.a_worker_keeps_its_limit),
    (WaitsForUsers, limits.a_call_that_waits_for_a_user_uses_no_capacity),
    (CountsWhatIsDue, suite.the_backlog_counts_pending_wakes),
    (CountsNothingThatRuns, suite.the_backlog_counts_pending_wakes),
    (WorksWhenClosed, suite.a_closed_engine_refuses_operations),
]


@pytest.mark.parametrize(("saboteur", "check"), SABOTEURS)
async def test_the_suite_finds_a_broken_promise(
    saboteur: type[Saboteur], check: EngineCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "PATIENCE", 0.2)  # short, since the awaited event never comes
    monkeypatch.setattr(AdvancesACallOnce, "advanced", set[str]())
    with pytest.raises(AssertionError, match=r"expected|has not happened"):
        await check(cast("Callable[[], Engine]", saboteur))
    assert check in ENGINE_CHECKS


def test_every_check_has_a_saboteur() -> None:
    assert {check for _, check in SABOTEURS} == set(ENGINE_CHECKS)
