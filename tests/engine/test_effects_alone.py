"""Effects with a fake scheduler and a fake recorder: the value of an unrecorded effect is never seen."""

import asyncio
import datetime as dt
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch._budget import UNLIMITED
from anabranch._engine.branch import Branch
from anabranch._engine.compensations import Compensations
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.effects import Effects
from anabranch._engine.functions import Perform, perform
from anabranch._engine.journal import Journal
from anabranch._engine.pinning import pin
from anabranch._engine.recorder import Records
from anabranch._engine.strands import Scope, Strand
from anabranch.errors import NonDeterminismError, SerializationError
from tests.diary import DONE
from tests.engine.clocks import Obliging
from tests.engine.harness import Book


class FakeScheduler:
    """Allows every operation, and records aborts."""

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

    @contextmanager
    def effect(self, strand: Strand) -> Generator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    def abort(self, error: Exception) -> None:
        self.aborted.append(error)


class Bench:
    """Effects and the fakes that they need."""

    def __init__(self, journal: Journal | None = None, perform: Perform = perform) -> None:
        self.journal = journal or Journal("call_1", 0.0)
        self.book = Book()
        self.scheduler = FakeScheduler()
        self.cursor = ReplayCursor(self.journal, "t", recording=True)
        records = Records(self.cursor, self.book)
        self.compensations = Compensations(self.journal, Obliging(), records)
        scheduler: Any = self.scheduler
        self.effects = Effects(self.cursor, scheduler, records, self.compensations, perform)
        self.scope = Scope(Branch(None, "t", UNLIMITED), "t")

    async def step(self, function: Any, *args: Any, undo: Any = None) -> Any:
        step_id = self.cursor.new_id(self.scope, "step")
        asked = pin(function, args)
        return await self.effects.step(self.scope, step_id, asked, function, args, 1, undo)


pytestmark = pytest.mark.usefixtures("nothing_done")


async def do(name: str) -> str:
    DONE.append(name)
    return name.upper()


async def undo(value: str) -> None:
    DONE.append(f"undo {value}")


async def test_no_effect_starts_while_the_run_closes() -> None:
    bench = Bench()
    bench.scheduler.closing = True
    with pytest.raises(asyncio.CancelledError):
        await bench.step(do, "a")
    assert DONE == []


class Payment(BaseModel):
    sum: int


class CardPayment(Payment):
    card: str


class Socket:
    pass


async def unannotated() -> Any:
    return Socket()


async def as_base_class() -> list[Payment]:
    return [CardPayment(sum=1, card="4242")]


async def as_date() -> dt.date:
    return dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize("function", [unannotated, as_base_class, as_date])
async def test_an_effect_is_undone_when_its_value_cannot_survive_the_record(function: Any) -> None:
    undone: list[object] = []
    bench = Bench()
    with pytest.raises(SerializationError, match=r"'t/step\.1'"):
        await bench.step(function, undo=undone.append)
    assert [type(value) for value in undone] == [type(await function())]
    assert isinstance(bench.cursor.fault, SerializationError)
    with pytest.raises(SerializationError):
        await bench.step(do, "a")
    assert DONE == []


async def test_a_failing_undo_of_an_unrecorded_effect_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[object] = []

    async def fail(value: object) -> None:
        tried.append(value)
        raise OSError("no")

    bench = Bench()
    with pytest.raises(SerializationError):
        await bench.step(as_base_class, undo=fail)
    assert len(tried) == 3
    assert "the undo of step 't/step.1' failed; its value is not recorded" in caplog.text


async def test_an_effect_does_not_happen_when_its_annotation_has_no_json() -> None:
    async def connect() -> Socket:
        DONE.append("connected")
        return Socket()

    bench = Bench()
    with pytest.raises(SerializationError, match=r"of type .*Socket"):
        await bench.step(connect)
    assert DONE == []


async def test_the_call_fails_when_an_effect_is_refused() -> None:
    async def refuse(step_id: str, *_: object) -> Any:
        raise NonDeterminismError(step_id, "nothing", "step")

    bench = Bench(perform=refuse)
    with pytest.raises(NonDeterminismError):
        await bench.step(do, "a")
    assert isinstance(bench.cursor.fault, NonDeterminismError)
    assert DONE == []
