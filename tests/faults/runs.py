"""Runs many calls, kills workers at planned points of each, and judges the outcome.

The plan says which workers die where. The trial checks that no call is lost: a completed call has
the right result, an abandoned call expires, and no call stays open. The rules within each call are
in ``verdict.py``.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2

from anabranch._aio import SystemClock, pause
from anabranch.stores import CallStore, open_store
from tests.faults.client import Way
from tests.faults.cluster import Cluster
from tests.faults.journey import ANYONE, BEFORE_QUESTION, END, STEPS, Settings, has_undo
from tests.faults.ledger import HAPPENS, Ledger
from tests.faults.stages import OVER_MCP, Player, Stage
from tests.faults.verdict import by_call, wrong_in

Scenario = Literal["success", "failure", "expired"]

OPERATIONS = ("open_round", "find", "release", "record", "undone", "move", "end_round", "round")
LEAVE_AT = 2
"""The question at which the user leaves a call that is to expire."""

LAST_LONG = 300.0
"""Seconds after which a call counts as lost if its user still waits, or if it is open at the end."""


@dataclass(frozen=True, slots=True)
class Run:
    """One call: its scenario, and the points at which its workers die."""

    name: str
    scenario: Scenario
    way: Way
    points: tuple[str, ...]
    anyone: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """The outcome of a trial.

    Attributes:
        killed: ids of the killed worker processes.
        repeated: number of requests that a client sent again.
        again: number of effects and undos that happened a second time, in the one unavoidable gap.
        wrong: broken rules, in words; empty if no rule was broken.
    """

    runs: int
    calls: int = 0
    effects: int = 0
    undos: int = 0
    killed: Collection[int] = ()
    repeated: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list[str])


def _points(scenario: Scenario) -> list[str]:
    """Return every point at which a worker can die in such a call."""
    steps = range(1, STEPS + 1)
    undone = [number for number in steps if has_undo(number)]
    if scenario == "expired":
        undone = [number for number in undone if number in BEFORE_QUESTION[LEAVE_AT]]
    of_steps = [f"{when}-step-{n}" for n in steps for when in ("before", "gap", "after")]
    of_undos = [f"{when}-undo-{n}" for n in undone for when in ("before", "gap")]
    if scenario == "success":
        return of_steps
    return of_undos if scenario == "expired" else of_steps + of_undos


def plan(seed: str, number: int | None) -> list[Run]:
    """Return runs in which workers die at every point in turn, in an order that ``seed`` decides.

    One run of each scenario comes first, whose workers die at all points. With a ``number``, the
    plan has only these runs and enough runs with a single point.
    """
    order = random.Random(seed)
    scenarios: tuple[Scenario, ...] = ("success", "failure", "expired")
    each: list[tuple[Scenario, tuple[str, ...]]]
    each = [(scenario, (point,)) for scenario in scenarios for point in _points(scenario)]
    order.shuffle(each)
    all_at_once: list[tuple[Scenario, tuple[str, ...]]]
    all_at_once = [(scenario, tuple(_points(scenario))) for scenario in scenarios]
    chosen = [*all_at_once, *each] if number is None else each[:number]
    ways: tuple[Way, ...] = ("rounds", "saga")
    return [
        Run(
            f"run{seed}.{index}",
            scenario,
            order.choice(ways),
            points,
            (f"{order.choice(('before', 'after'))}-{order.choice(OPERATIONS)}",),
        )
        for index, (scenario, points) in enumerate(chosen)
    ]


async def _nothing(_ledger: Ledger, _cluster: Cluster) -> None:
    """Disturb no worker, apart from the planned deaths."""


class Trial:
    """All runs over one store.

    Args:
        folder: an empty folder, for the ledger.
        url: the store's URL.
        speed: the speed of the workers' clock.
        at_once: number of simultaneous calls.
        stage: the processes to disturb, and their clients.
        workers: the settings in which the processes differ.
        disturb: disturbs the workers in other ways, and marks in the ledger which are out of reach.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        *,
        speed: float,
        at_once: int,
        stage: Stage = OVER_MCP,
        workers: Sequence[Mapping[str, Any]] | None = None,
        disturb: Callable[[Ledger, Cluster], Awaitable[None]] = _nothing,
    ) -> None:
        settings = Settings(str(folder), url, time.time(), speed)
        self.ledger = Ledger(folder)
        given = workers or [dict[str, Any]()] * len(stage.places)
        each_of = [replace(settings, **each) for each in given]
        self._stage = stage
        self._cluster = Cluster(stage.work, each_of, stage.fronts)
        self._results: list[tuple[Run, dict[str, Any]]] = []
        self._disturb = disturb
        self._store: CallStore = open_store(url)
        self._at_once = anyio.CapacityLimiter(at_once)
        self._repeated = 0
        self._wrong: list[str] = []

    async def go(self, runs: Sequence[Run]) -> Report:
        async with self._cluster.running() as url, _connections() as http:
            disturbing = asyncio.ensure_future(self._disturb(self.ledger, self._cluster))
            async with anyio.create_task_group() as group:
                for run in runs:
                    group.start_soon(self._play, run, self._stage.client(run.name, url, http))
            await disturbing
            await self._expire_all()
        report = await self._judge(runs)
        await self._store.close()
        return report

    async def _play(self, run: Run, client: Player) -> None:
        async with self._at_once:
            for point in run.points:
                self.ledger.arm(run.name, point)
            for point in run.anyone:
                self.ledger.arm(ANYONE, point)
            ending = "success" if run.scenario == "success" else "failure"
            leave_at = LEAVE_AT if run.scenario == "expired" else None
            arguments = {"run": run.name, "ending": ending}
            result: dict[str, Any] | None = {"content": [{"text": "Nothing."}], "isError": False}
            with anyio.move_on_after(LAST_LONG):
                result = await client.play(run.way, arguments, leave_at=leave_at)
        self._repeated += client.repeated
        if result is not None:
            self._results.append((run, result))

    def _wrong_with(self, run: Run, result: dict[str, Any], seen: set[str]) -> Iterable[str]:
        text, failed = result["content"][0]["text"], result.get("isError", False)
        if run.scenario == "failure":
            if not failed or END not in text:
                yield f"it ended with {text}"
        elif failed:
            yield f"it failed with {text}"
        else:
            keys = text.split()
            if len(set(keys)) != self._stage.steps or not set(keys) <= seen:
                yield f"it returned {text}"

    async def _expire_all(self) -> None:
        """Expire the abandoned calls, and wait until the workers have ended them."""
        with anyio.move_on_after(LAST_LONG):
            while left := await self._store.expired(float("inf"), 1000):
                for call in left:
                    # A deadline that a reaper has not postponed.
                    if call.deadline > time.time() + 3600:
                        await self._store.hasten(call.call_id, 0.0, call.state)
                # Other processes work and send no signal here, so this process polls.
                await pause(SystemClock(), 0.1)
            return
        left = await self._store.expired(float("inf"), 1000)
        self._wrong += [f"{call.call_id} is still open: {call.arguments}" for call in left]

    # -- the verdict -------------------------------------------------------------------------------

    async def _judge(self, runs: Sequence[Run]) -> Report:
        lines = self.ledger.read()
        calls = by_call(lines)
        seen: dict[str, set[str]] = {run.name: set() for run in runs}
        for line in lines:
            if line.kind == "seen":
                seen[line.run].add(line.key)
        for run, result in self._results:
            wrongs = self._wrong_with(run, result, seen[run.name])
            self._wrong += [f"{run.name}: {wrong}" for wrong in wrongs]
        ended = {call: await self._store.find(call) for call in calls}
        named = {line.call: line.run for line in lines if line.run}
        for run in runs:
            of_run = [call for call, name in named.items() if name == run.name]
            statuses = Counter(
                str(record.state) for name in of_run if (record := ended[name]) is not None
            )
            wanted = {"success": "done", "failure": "failed", "expired": "expired"}[run.scenario]
            if statuses != {wanted: 1}:
                self._wrong.append(f"{run.name}: its calls are {dict(statuses)}")
        done = [
            name for name, record in ended.items() if record is not None and record.state == "done"
        ]
        self._wrong += wrong_in(lines, self._cluster.killed, done, self._stage.steps)
        for number, status in self._cluster.ended.items():
            self._wrong.append(f"worker {number} ended by itself with {status}")
        unused = [point for point in self.ledger.armed() if not point.startswith(ANYONE)]
        self._wrong += [f"no worker came to {point}" for point in unused]
        happened = [line for line in lines if line.kind in HAPPENS]
        return Report(
            len(runs),
            len(calls),
            sum(line.kind == "step" for line in lines),
            sum(line.kind == "undo" for line in lines),
            frozenset(self._cluster.killed),
            self._repeated,
            len(happened) - len({(line.kind, line.key) for line in happened}),
            self._wrong,
        )


@asynccontextmanager
async def _connections() -> AsyncGenerator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx2.AsyncClient(limits=limits, timeout=120.0, trust_env=False) as http:
        yield http
