"""The scheduler with a fake owner: strands wait, are suspended, and end, without a journal or a call."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from anabranch._budget import UNLIMITED
from anabranch._engine import scheduler as module
from anabranch._engine.branch import Branch
from anabranch._engine.quiescence import Quiet
from anabranch._engine.scheduler import Scheduler
from anabranch._engine.strands import Scope, Strand, install_task_factory
from anabranch.errors import ContextUseError, NonDeterminismError


class FakeOwner:
    """Suspends when all strands wait, and records reports."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.quiet: list[bool] = []
        self.ended: list[str] = []
        self.not_suspended: list[str] = []
        self.waiting: set[asyncio.Task[Any]] = set()
        self.scheduler = Scheduler(self, "call_1")

    def seconds_asleep(self) -> float | None:
        return None

    def answer_late(self) -> bool:
        return False

    def on_quiet(self, quiet: Quiet) -> None:
        self.quiet.append(quiet.certain)
        self.waiting = set(self.scheduler.strands)
        self.scheduler.suspend()

    def on_strand_ended(self, strand: Strand) -> None:
        self.ended.append(strand.path)

    def on_not_suspended(self, task: asyncio.Task[Any], found: str) -> None:
        self.not_suspended.append(found)

    def start(self, body: Coroutine[Any, Any, Any], *, watch: bool = True) -> asyncio.Task[Any]:
        install_task_factory()
        scope = Scope(Branch(None, "t", UNLIMITED), "t")
        return self.scheduler.start(body, scope, watch=watch)

    async def park(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.scheduler.park(future)
        await future


async def test_an_operation_that_is_never_awaited_is_closed() -> None:
    owner = FakeOwner()

    async def never() -> None:
        raise AssertionError

    async def body() -> None:
        made = [owner.scheduler.made(never()) for _ in range(100)]
        await owner.park()
        del made

    owner.start(body())
    await owner.scheduler.changed.wait()
    await owner.scheduler.cancel_and_wait()


async def test_the_first_refused_of_several_operations_raises() -> None:
    scheduler = FakeOwner().scheduler
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)

    async def operation() -> None:
        await done

    plain = scheduler.made(operation())
    assert scheduler.refusal_of([plain]) is None
    refused = [scheduler.made(operation(), ValueError(text)) for text in ("one", "two")]
    assert str(scheduler.refusal_of([done, plain, *refused])) == "one"
    assert scheduler.refusal_of([done, plain]) is None
    await asyncio.gather(plain, *refused)


async def test_a_strand_that_continues_after_its_suspension_is_reported() -> None:
    owner = FakeOwner()

    async def body() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await owner.park()
        await owner.scheduler.go_live(owner.scheduler.scope(), "t/more.1")

    owner.start(body())
    await owner.scheduler.changed.wait()
    await owner.scheduler.cancel_and_wait()
    owner.scheduler.check_suspended(owner.waiting)
    assert owner.not_suspended == ["it went on to 't/more.1'"]


async def test_a_strand_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CANCEL_TIMEOUT", 0.01)
    owner, over = FakeOwner(), asyncio.Event()

    async def body() -> None:
        try:
            await owner.park()
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(over.wait()))

    task = owner.start(body())
    await owner.scheduler.changed.wait()
    await owner.scheduler.cancel_and_wait()
    owner.scheduler.check_suspended(owner.waiting)
    assert "still runs" in owner.not_suspended[0]
    over.set()
    await asyncio.wait({task})


async def test_a_fault_is_raised_at_the_next_new_operation() -> None:
    owner = FakeOwner()
    owner.fault = NonDeterminismError("t/a.1", "this", "that")

    async def body() -> None:
        await owner.scheduler.go_live(owner.scheduler.scope(), "t/b.1")

    with pytest.raises(NonDeterminismError, match=r"t/a\.1"):
        await owner.start(body(), watch=False)


async def test_a_replay_runs_no_new_operation() -> None:
    owner = FakeOwner()
    owner.scheduler.replaying = True

    async def body() -> None:
        await owner.scheduler.go_live(owner.scheduler.scope(), "t/a.1")

    task = owner.start(body())
    await owner.scheduler.changed.wait()
    await owner.scheduler.cancel_and_wait()
    assert (owner.quiet, task.cancelled()) == ([True], True)
    assert list(owner.scheduler.stalled) == ["t/a.1"]


async def test_an_abort_cancels_all_and_keeps_the_first_error() -> None:
    owner = FakeOwner()

    async def body() -> None:
        await owner.park()

    task = owner.start(body(), watch=False)
    await owner.scheduler.changed.wait()
    first = OSError("first")
    owner.scheduler.abort(first)
    owner.scheduler.abort(OSError("second"))
    await asyncio.wait({task})
    assert (owner.scheduler.failure, task.cancelled()) == (first, True)


async def test_effects_are_finished_and_other_work_is_cancelled() -> None:
    owner, over = FakeOwner(), asyncio.Event()
    done: list[str] = []

    async def body() -> None:
        other = asyncio.create_task(owner.park())
        strand = await owner.scheduler.go_live(owner.scheduler.scope(), "t/a.1")
        with owner.scheduler.effect(strand):
            await over.wait()
            done.append(f"effect, {other.cancelled()}")
        await owner.park()

    owner.start(body(), watch=False)
    await owner.scheduler.changed.wait()
    asyncio.get_running_loop().call_later(0.01, over.set)
    await owner.scheduler.finish_effects()
    await owner.scheduler.cancel_and_wait()
    assert done == ["effect, True"]


async def test_a_scope_belongs_to_the_strand_of_its_own_call() -> None:
    owner, other = FakeOwner(), FakeOwner()

    async def body() -> str:
        with pytest.raises(ContextUseError, match=r"in another call .* Use the ctx that your"):
            other.scheduler.scope()
        return owner.scheduler.scope().path

    assert await owner.start(body(), watch=False) == "t"
    with pytest.raises(ContextUseError, match="no task of the call"):
        owner.scheduler.scope()


async def test_a_strand_in_an_unknown_thread_is_found() -> None:
    owner = FakeOwner()

    async def body() -> str:
        owner.scheduler._thread = 0  # as if the code ran in another thread
        return owner.scheduler.strand().path

    task = owner.start(body())
    assert await task == "t"
