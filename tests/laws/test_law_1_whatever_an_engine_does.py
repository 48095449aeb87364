"""Law 1 with an engine that loses, repeats, delays and reorders wakes, and is restored during calls.

Generated programs are calls that two workers continue, round by round, as the engine wakes them.
The store is the authority, and periodic work wakes overdue calls. Each call therefore has the
result of an undisturbed run. A call whose user leaves is undone as in an undisturbed run.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch import AnabranchError
from anabranch._aio import Clock, Timer, cancel_and_wait, pause, run_every
from anabranch._durable import CallService, Reaper
from anabranch._engine import Finished
from anabranch.engines import Wake
from anabranch.errors import StoreError
from anabranch.testing import ManualClock, TestEngine
from anabranch.tool import Runtime
from tests.durable.plays import Play, Seen, assert_the_same, patiently
from tests.durable.stores import Modelled
from tests.laws import programs as language
from tests.laws.programs import Block
from tests.randomised import examples

pytestmark = pytest.mark.usefixtures("quiet")

PATIENCE = 120
"""Real seconds after which a test counts as hanging."""

OVERDUE_AFTER = 60.0
CALL, TOOL = "call_1", "program"
SEEDS = st.integers(0, 2**32)


class ProgramTime:
    """The time of a program. Only the program advances it; waiting tasks use the engine's clock."""

    def __init__(self, world: Clock, engine: Clock) -> None:
        self._world = world
        self._engine = engine

    def now(self) -> float:
        return self._world.now()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return self._engine.call_at(self._engine.now() + when - self.now(), callback)


@dataclass
class Known:
    """The call's latest round, the answers to it in their order of arrival, and the outcome."""

    number: int = 0
    state: str | None = None
    responses: Mapping[str, BaseModel] | None = field(default_factory=dict[str, BaseModel])
    outcome: tuple[str, Any] | None = None


class Disturbed:
    """A program that two workers of a faulty engine run."""

    def __init__(self, program: Block, seed: int, leave_at: int | None = None) -> None:
        self.play = Play(program)
        self.clock = ManualClock()
        self.engine = TestEngine(
            seed, drop=0.25, double=0.25, delay=0.25, longest=OVERDUE_AFTER, clock=self.clock
        )
        self.store = Modelled()
        self.known = Known()
        self.changed = asyncio.Event()
        self._leave_at = leave_at
        self._time = ProgramTime(self.play.world.clock, self.clock)

    def service(self) -> CallService:
        runtime = Runtime(clock=self._time, ids=self.play.desk.ids)
        return CallService(runtime, patiently(self.store))

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run two workers, and periodic work on both, within the block."""
        tasks = [asyncio.ensure_future(self._work(self.service())) for _ in range(2)]
        tasks += [
            asyncio.ensure_future(
                run_every(self.clock, OVERDUE_AFTER, "overdue", self._wake_overdue)
            )
            for _ in range(2)
        ]
        async with asyncio.timeout(PATIENCE), self.clock.running(step=1.0):
            try:
                yield
            finally:
                await cancel_and_wait(tasks)
        for task in tasks:
            assert task.cancelled() or task.exception() is None

    async def begin(self, *, is_down: bool) -> None:
        """Start the call; with ``is_down``, while the engine is out of reach."""
        self.engine.is_down = is_down
        try:
            await self.engine.wake(Wake(CALL, "0", TOOL))
        except StoreError:
            assert is_down
        self.engine.is_down = False

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    def has_left(self) -> bool:
        """Return whether the call has ended, or its user has left."""
        return self.known.outcome is not None or self.known.responses is None

    async def _work(self, service: CallService) -> None:
        async def advance(wake: Wake) -> None:
            del wake  # the store, not the wake, says what to do
            await self._advance(service)

        await self.engine.work({TOOL: "1"}, advance, 10)

    async def _wake_overdue(self) -> None:
        if not self.has_left():
            turn = str(self.known.number)
            await self.engine.wake(Wake(CALL, turn, TOOL, not_before=self.clock.now()))

    async def _advance(self, service: CallService) -> None:
        known, desk = self.known, self.play.desk
        if known.outcome is not None or known.responses is None:
            return
        number, reply = known.number, None
        ended: tuple[str, Any] = "bug", None
        try:
            reply = await desk.request(service, known.state, known.responses)
        except AnabranchError as error:
            ended = "error", str(error)
        except (ValueError, RuntimeError):
            pass
        if isinstance(reply, Finished):
            ended = "value", json.loads(json.dumps(reply.value))
        if not isinstance(reply, InputRequiredResult):
            assert known.outcome in (None, ended)
            known.outcome = ended
            self.changed.set()
            return
        if number == known.number:  # the other worker has not continued the call meanwhile
            known.number, known.state = number + 1, reply.request_state
            is_left = self._leave_at is not None and known.number > self._leave_at
            known.responses = None if is_left else desk.answer(reply)
            self.changed.set()
        await self.engine.wake(Wake(CALL, str(known.number), TOOL))


async def played(program: Block, seed: int, *, is_down: bool, restored_at: int) -> Disturbed:
    """Run a program to its end; restore the engine when the call reaches round ``restored_at``."""
    disturbed = Disturbed(program, seed)
    async with disturbed.running():
        await disturbed.begin(is_down=is_down)
        await disturbed.until(lambda: disturbed.has_left() or disturbed.known.number >= restored_at)
        await disturbed.engine.restore(disturbed.clock.now() - 3600 * (seed % 2))
        await disturbed.until(disturbed.has_left)
    return disturbed


@examples(60, gate=20)
@given(language.small_programs, SEEDS, st.booleans(), st.integers(0, 4))
async def test_a_call_has_the_same_result_whatever_the_engine_does(
    program: Block, seed: int, is_down: bool, restored_at: int
) -> None:
    calm = Play(program)
    seen = await calm.over(Modelled())
    disturbed = await played(program, seed, is_down=is_down, restored_at=restored_at)
    assert disturbed.known.outcome is not None
    assert_the_same(disturbed.play.seen(disturbed.known.outcome), seen, gap=False)
    assert sorted(disturbed.play.desk.notices) == sorted(calm.desk.notices)


async def left(program: Block, leave_at: int, seed: int | None) -> tuple[str, Seen]:
    """Leave a call at a question and let it expire; return its state and outcome."""
    disturbed = Disturbed(program, seed or 0, leave_at)
    world, store = disturbed.play.world.clock, disturbed.store
    if seed is None:
        disturbed.engine = TestEngine(0, clock=disturbed.clock)
    async with disturbed.running():
        await disturbed.begin(is_down=False)
        await disturbed.until(disturbed.has_left)
        world.advance(200_000)
        tools = {TOOL: disturbed.play.desk.tool}
        reapers = [Reaper(disturbed.service(), tools) for _ in range(2)]
        reaping = [asyncio.ensure_future(each.run()) for each in reapers]
        while (record := await store.find(CALL)) is not None and record.state.is_open:
            await pause(disturbed.clock, 1.0)
        await cancel_and_wait(reaping)
    assert record is not None
    return record.state, disturbed.play.seen(disturbed.known.outcome or ("left", None))


@examples(40, gate=15)
@given(language.small_programs, SEEDS, st.integers(0, 2))
async def test_an_abandoned_call_is_undone_in_the_same_way_whatever_the_engine_does(
    program: Block, seed: int, leave_at: int
) -> None:
    status, calm = await left(program, leave_at, None)
    disturbed_status, seen = await left(program, leave_at, seed)
    assert disturbed_status == status
    assert_the_same(seen, calm, gap=False)
