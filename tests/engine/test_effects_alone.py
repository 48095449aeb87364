"""Effects with a fake scheduler and a fake recorder: recorded before they are seen, or not seen."""

import asyncio
from typing import Any

import pytest

from anabranch._engine.branch import Branch
from anabranch._engine.compensations import Compensations
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.effects import Effects
from anabranch._engine.functions import step_fingerprint
from anabranch._engine.journal import Journal
from anabranch._engine.recorder import Records
from anabranch._engine.scope import Scope
from anabranch._engine.strands import Strand
from anabranch.limits import UNLIMITED
from anabranch.testing import ManualClock
from tests.engine.harness import Book


class FakeScheduler:
    """Lets everything happen, and notes what is aborted."""

    def __init__(self) -> None:
        self.closing = False
        self.busy = 0
        self.aborted: list[Exception] = []

    async def raise_fault(self, step_id: str, fault: Exception) -> None:
        raise fault

    async def go_live(self, scope: Scope, step_id: str) -> Strand:
        owner: Any = self
        task: Any = asyncio.current_task()
        return Strand(owner, task, scope)

    async def may_begin(self) -> None:
        pass

    def begin_effect(self, strand: Strand) -> None:
        self.busy += 1

    def end_effect(self, strand: Strand) -> None:
        self.busy -= 1

    def abort(self, error: Exception) -> None:
        self.aborted.append(error)


class Bench:
    """Effects and what they need."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.journal = journal or Journal("call_1", 0.0)
        self.book = Book()
        self.scheduler = FakeScheduler()
        self.cursor = ReplayCursor(self.journal, "t", recording=True)
        records = Records(self.cursor, self.book)
        self.compensations = Compensations(self.journal, ManualClock(), records)
        scheduler: Any = self.scheduler
        self.effects = Effects(self.cursor, scheduler, records, self.compensations)
        self.scope = Scope(Branch(None, "t", UNLIMITED), "t")

    async def step(self, function: Any, *args: Any, undo: Any = None) -> Any:
        step_id = self.cursor.new_id(self.scope, "step")
        asked = step_fingerprint(function, args)
        return await self.effects.step(self.scope, step_id, asked, function, args, 1, undo)


done: list[str] = []


async def do(name: str) -> str:
    done.append(name)
    return name.upper()


async def undo(value: str) -> None:
    done.append(f"undo {value}")


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def test_an_effect_runs_once_and_is_written_before_its_value_is_seen() -> None:
    bench = Bench()
    assert await bench.step(do, "a") == "A"
    assert bench.book.entries["t/step.1"].value == "A"
    again = Bench(Journal.loads(bench.journal.dumps()))
    assert await again.step(do, "a") == "A"
    assert (done, bench.scheduler.busy) == (["a"], 0)


async def test_nothing_begins_once_the_run_is_closing() -> None:
    bench = Bench()
    bench.scheduler.closing = True
    with pytest.raises(asyncio.CancelledError):
        await bench.step(do, "a")
    assert done == []
