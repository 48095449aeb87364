"""If a store fails between an effect and its record, the record waits for the store within the lease."""

import sqlite3
import tempfile
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, ToolError, tool
from anabranch._aio import SystemClock
from anabranch._durable import CallRecord, CallStore, Durability, Lease, Reaper, dump_entry, merge
from anabranch._durable.recorder import StoreRecorder
from anabranch._engine import Entry, Finished, Journal
from anabranch.errors import StoreError, UnknownCallError
from anabranch.stores import open_store
from anabranch.testing import ManualClock
from tests.durable.harness import Desk, always
from tests.durable.stores import Modelled, Watched
from tests.postgres import Server

DONE: list[str] = []
WHILE_DONE: list[Callable[[], None]] = []


class Ok(BaseModel):
    ok: bool


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()
    WHILE_DONE.clear()


async def book(key: str) -> str:
    DONE.append(key)
    for also in WHILE_DONE:
        also()
    return key


async def cancel(key: str) -> None:
    DONE.append(f"cancel {key}")
    for also in WHILE_DONE:
        also()


@tool
async def once(ctx: BranchContext) -> str:
    return await ctx.step(book, ctx.idempotency_key)


@tool
async def fails(ctx: BranchContext) -> None:
    await ctx.step(book, ctx.idempotency_key, undo=cancel)
    raise ToolError("No more.")


@tool
async def asks(ctx: BranchContext) -> None:
    await ctx.step(book, ctx.idempotency_key, undo=cancel)
    await ctx.elicit(Ok, "Go on?")


class Failing(Watched):
    """A store that fails to record while ``failures`` are left."""

    def __init__(self, store: CallStore, error: StoreError | None = None) -> None:
        super().__init__(store)
        self.failures = 0.0
        self.also = ""
        self.error = error or StoreError("locked")

    def away(self, times: float) -> Callable[[], None]:
        def begin() -> None:
            self.failures = times
            WHILE_DONE.clear()

        return begin

    async def _pass(self, name: str, work: Any) -> Any:
        if name in {"record", "undone", self.also} and self.failures > 0:
            self.failures -= 1
            raise self.error
        return await super()._pass(name, work)


KEY = "call_1:once/step.1"


async def test_a_record_waits_for_the_store() -> None:
    store = Failing(Modelled())
    desk = Desk(once, always(ok=True))
    WHILE_DONE.append(store.away(5))
    async with desk.clock.running(0.1):
        assert await desk.send(store) == Finished(KEY)
    assert DONE == [KEY]
    assert store.failures == 0


async def test_a_record_waits_at_most_for_the_lease_and_the_error_names_the_effect() -> None:
    store = Failing(Modelled())
    desk = Desk(once, always(ok=True))
    WHILE_DONE.append(store.away(float("inf")))
    begun = desk.clock.now()
    async with desk.clock.running(0.01):
        with pytest.raises(ToolError) as refused:
            await desk.send(store)
        assert 15 <= desk.clock.now() - begun < 40
    assert f"step 'once/book.1' (idempotency key '{KEY}')" in str(refused.value)
    assert "may then happen a second time" in str(refused.value)
    assert "Nothing is lost" not in str(refused.value)
    store.failures = 0
    assert await desk.send(store) == Finished(KEY)
    assert DONE == [KEY, KEY]


async def test_a_store_failure_before_an_effect_fails_immediately() -> None:
    """No effect has happened without a record."""
    store = Failing(Modelled())
    desk = Desk(asks, always(ok=True))
    first: Any = await desk.send(store)
    store.failures, store.also = 1, "open_round"

    @tool(name="asks")
    async def more(ctx: BranchContext) -> str:
        await ctx.step(book, ctx.idempotency_key, undo=cancel)
        await ctx.elicit(Ok, "Go on?")
        return await ctx.step(book, ctx.idempotency_key, undo=cancel)

    desk.tool = more
    with pytest.raises(ToolError, match="Nothing is lost"):
        await desk.request(desk.service(store), first.request_state, desk.answer(first))
    assert len(DONE) == 1


async def test_a_record_does_not_wait_for_a_deleted_call() -> None:
    store = Failing(Modelled(), UnknownCallError("call_1"))
    desk = Desk(once, always(ok=True))
    WHILE_DONE.append(store.away(1))
    with pytest.raises(Exception, match="Invalid or expired token"):
        await desk.send(store)


async def test_the_record_of_an_undo_waits_for_the_store() -> None:
    store = Failing(Modelled())
    desk = Desk(asks, always(ok=True))
    await desk.send(store)
    desk.clock.advance(1_000)
    WHILE_DONE.append(store.away(3))
    async with desk.clock.running(0.1):
        assert await Reaper(desk.service(store), {"asks": asks}).expire() == 1
    assert DONE == ["call_1:asks/step.1", "cancel call_1:asks/step.1"]
    assert store.failures == 0


async def test_an_undo_that_could_not_be_recorded_is_named() -> None:
    store = Failing(Modelled())
    desk = Desk(fails, always(ok=True))

    def no_more() -> None:
        if len(DONE) == 2:
            store.away(float("inf"))()

    WHILE_DONE.append(no_more)
    async with desk.clock.running(0.1):
        with pytest.raises(ToolError, match=r"the undo of step 'fails/book\.1'"):
            await desk.send(store)


async def test_a_deadline_is_recorded_with_the_first_entry_of_its_step(clock: ManualClock) -> None:
    """A deadline that another worker recorded earlier stays unchanged."""
    store, step = Modelled(), Entry("step", "book", 1)
    await store.begin(CallRecord("call_1", "once", "{}", 0.0, 1e9))
    await store.record("call_1", 0, {"first": dump_entry(step)})
    journal = Journal("call_1", 0.0)
    async with Lease(store, "call_1", clock, seconds=15) as lease:
        opened = await lease.open_round(0)
        recorder = StoreRecorder(store, journal, lease, opened.given)
        journal.deadlines["once/branch"] = 5.0
        await recorder.record({"first": replace(step, value=2)}, {})
        await recorder.record({"second": step}, {})
    found = Journal("call_1", 0.0)
    merge(found, await store.entries("call_1", 0))
    assert found.deadlines == {"once/branch": 5.0}


# -- real databases ----------------------------------------------------------------------------


class Releasing(Watched):
    """A store whose database comes back after a failed record."""

    def __init__(self, store: CallStore, come_back: Callable[[], None]) -> None:
        super().__init__(store)
        self.come_back = come_back
        self.failed: list[str] = []

    async def _pass(self, name: str, work: Any) -> Any:
        try:
            return await super()._pass(name, work)
        except StoreError as error:
            self.failed.append(name)
            if name == "record":
                self.come_back()
            raise error from None


async def request(store: CallStore, policy: Durability) -> Any:
    desk = Desk(once, always(ok=True), policy=lambda _: policy)
    service = desk.service(store)
    service.runtime = type(service.runtime)(clock=SystemClock(), ids=desk.ids)
    return await desk.request(service)


async def test_a_record_waits_for_a_locked_sqlite_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/calls.db?timeout=0.1")
    other = sqlite3.connect(
        tmp_path / "calls.db", isolation_level=None, check_same_thread=False, timeout=60
    )
    releasing = Releasing(store, other.rollback)

    def lock() -> None:
        other.execute("BEGIN IMMEDIATE")

    WHILE_DONE.append(lock)
    assert await request(releasing, Durability(releasing, lease=300)) == Finished(KEY)
    assert DONE == [KEY]
    assert releasing.failed == ["record"]
    other.close()
    await store.close()


@pytest.fixture
def restarted() -> Generator[Server]:
    """Start a Postgres server that only this test uses."""
    with tempfile.TemporaryDirectory(prefix="anabranch-") as folder:
        server = Server(Path(folder))
        server.start()
        try:
            yield server
        finally:
            if server.is_running:
                server.stop()


async def test_a_record_waits_for_a_restarted_postgres(restarted: Server) -> None:
    store = open_store(f"{restarted.new_url()}&timeout=2")
    releasing = Releasing(store, restarted.start_again)
    WHILE_DONE.append(restarted.stop)
    assert await request(releasing, Durability(releasing, lease=300)) == Finished(KEY)
    assert DONE == [KEY]
    assert "record" in releasing.failed
    await store.close()
