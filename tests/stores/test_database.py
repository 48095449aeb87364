"""The guarantees of a database for the table modules: batches, cancellation, threads, connections."""

import asyncio
import gc
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from anabranch._durable import CallEvent, RoundRecord
from anabranch.errors import StoreError
from anabranch.stores import _database as databases
from anabranch.stores import _engines as engines
from anabranch.stores import _sql, open_store, open_tree_store
from anabranch.stores import _threads as connections
from anabranch.stores._database import Database
from anabranch.stores._engines import read_url
from anabranch.stores._threads import Batches, ConnectionHealth, ThreadConnections
from tests.patience import PATIENCE
from tests.suites.call_samples import OpenCallStore, a_call
from tests.suites.expectations import opened
from tests.suites.tree_samples import a_node, a_thread, calls_tool


class Gate:
    """Work that occupies a thread of the database until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def work(self, _connection: sa.Connection) -> str:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return "through"

    async def wait_entered(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self.entered.wait, 30)


def add(name: str) -> Any:
    def work(connection: sa.Connection) -> str:
        connection.execute(sa.text("INSERT INTO note VALUES (:name)"), {"name": name})
        return name

    return work


def fail(connection: sa.Connection) -> None:
    add("half")(connection)
    raise StoreError("on purpose")


def nothing(_connection: sa.Connection) -> None:
    pass


def notes(connection: sa.Connection) -> list[str]:
    return [
        str(name) for name in connection.scalars(sa.text("SELECT name FROM note ORDER BY name"))
    ]


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = Database(read_url(url))
    await database.write(
        lambda connection: connection.execute(sa.text("CREATE TABLE note (name TEXT)"))
    )
    yield database
    await database.close()


async def test_a_failing_part_of_a_batch_leaves_the_other_parts(database: Database) -> None:
    gate = Gate()
    results: list[Any] = [None, None, None]

    async def write(place: int, work: Any) -> None:
        try:
            results[place] = await database.write(work)
        except StoreError as error:
            results[place] = str(error)

    async with anyio.create_task_group() as group:
        group.start_soon(database.write, gate.work)
        await gate.wait_entered()
        for place, work in enumerate((add("a"), fail, add("b"))):
            group.start_soon(write, place, work)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()

    assert results == ["a", "on purpose", "b"]
    assert await database.read(notes) == ["a", "b"]


async def test_a_snapshot_reads_a_consistent_state(database: Database, url: str) -> None:
    engine = sa.create_engine(read_url(url).url)

    def work(connection: sa.Connection) -> list[list[str]]:
        before = notes(connection)
        with engine.begin() as other:
            add("meanwhile")(other)
        return [before, notes(connection)]

    assert await database.read_at_once(work) == [[], []]
    assert await database.read(notes) == ["meanwhile"]
    engine.dispose()


async def test_waiting_writes_share_one_commit(tmp_path: Path) -> None:
    database = Database(read_url(f"sqlite:///{tmp_path}/calls.db"))
    commits: list[sa.Connection] = []
    listener = commits.append
    event.listen(sa.Engine, "commit", listener)
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(database.write, gate.work)
        await gate.wait_entered()
        commits.clear()
        for _ in range(50):
            group.start_soon(database.write, nothing)
        await anyio.wait_all_tasks_blocked()
        gate.opened.set()
    await database.close()
    event.remove(sa.Engine, "commit", listener)

    assert len(commits) == 2, "the one in which the others waited, and theirs"


async def test_when_a_batch_cannot_begin_all_callers_get_the_error(tmp_path: Path) -> None:
    database = Database(read_url(f"sqlite:///{tmp_path}/calls.db?timeout=0.05"))
    await database.write(nothing)
    other = sqlite3.connect(tmp_path / "calls.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(
        *(database.write(nothing) for _ in range(3)), return_exceptions=True
    )
    other.close()
    await database.close()

    assert ["is locked" in str(result) for result in results] == [True] * 3


async def test_a_failed_commit_leaves_no_changes(tmp_path: Path) -> None:
    database = Database(read_url(f"sqlite:///{tmp_path}/calls.db"))

    def entry_of_no_call(connection: sa.Connection) -> None:
        connection.execute(sa.text("PRAGMA defer_foreign_keys = ON"))
        connection.execute(
            sa.text(
                "INSERT INTO anabranch_entry (call_id, number, step_id, text)"
                " VALUES (x'00', 1, x'00', x'00')"
            )
        )

    def entries(connection: sa.Connection) -> object:
        return connection.scalar(sa.text("SELECT count(*) FROM anabranch_entry"))

    for _ in range(2):
        with pytest.raises(StoreError, match="no longer has the record"):
            await database.write(entry_of_no_call)
        assert await database.write(entries) == 0
    await database.close()


async def test_work_cancelled_before_its_start_does_not_run(tmp_path: Path) -> None:
    database = Database(read_url(f"sqlite:///{tmp_path}/calls.db"))
    done: list[str] = []
    gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(database.write, gate.work)
        await gate.wait_entered()
        waiting = asyncio.ensure_future(database.write(lambda _: done.append("late")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.opened.set()
    await database.close()

    assert done == []


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_a_cancelled_caller_waits_for_started_work(how: str, database: Database) -> None:
    """Otherwise the store could write for a caller that already does something else."""
    gate = Gate()
    order: list[str] = []

    async def write() -> None:
        try:
            await database.write(gate.work)
        finally:
            order.append("caller is free")

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            task = asyncio.ensure_future(write()) if how == "task" else None
            if task is None:
                group.start_soon(write)
            await gate.wait_entered()
            task.cancel() if task is not None else scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(5):
                    await asyncio.sleep(0)
                order.append("work is over")
                gate.opened.set()
                if task is not None:
                    with pytest.raises(asyncio.CancelledError):
                        await task

    assert order == ["work is over", "caller is free"]


async def test_failed_work_of_a_cancelled_caller_is_not_reported(database: Database) -> None:
    """The same holds for a caller cancelled before its work began: no task needs the result."""
    gate = Gate()
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail(connection: sa.Connection) -> None:
        gate.work(connection)
        raise StoreError("out of reach")

    task = asyncio.ensure_future(database.write(fail))
    await gate.wait_entered()
    task.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    await asyncio.sleep(0)

    assert reported == []


async def test_one_store_serves_several_event_loops(open_any: OpenCallStore) -> None:
    async with opened(open_any) as store:
        await store.begin(a_call())

        async def work(name: str) -> None:
            for number in range(5):
                await store.record("call_1", 0, {f"{name}.{number}": name})

        def run(name: str) -> None:
            anyio.run(work, name)

        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(run, f"loop {number}") for number in range(4)]
            for one in running:
                await anyio.to_thread.run_sync(one.result)

        assert len(await store.entries("call_1", 0)) == 20


async def test_slow_steps_of_authors_do_not_delay_a_store(open_any: OpenCallStore) -> None:
    """Synchronous steps run in anyio's threads, of which there are forty."""
    slow = threading.Event()

    async def wait() -> None:
        await anyio.to_thread.run_sync(slow.wait)

    async with opened(open_any) as store, anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()

        try:
            with anyio.fail_after(PATIENCE):
                assert await store.begin(a_call()) == a_call()
        finally:
            slow.set()


def test_work_after_the_close_is_dropped() -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    engine = sa.create_engine("sqlite://")
    batches = Batches(threads, ThreadConnections(engine, ConnectionHealth()).transaction)

    def work(_: sa.Connection) -> None: ...

    dropped = weakref.ref(work)
    with pytest.raises(RuntimeError):
        batches.submit(work)
    del work
    gc.collect()
    assert dropped() is None
    engine.dispose()


async def test_connections_closed_by_the_server_are_replaced(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TRUSTED", 0.0)
    async with opened(partial(open_store, postgres.new_url())) as store:
        await store.begin(a_call())
        postgres.close_connections()

        assert await store.find("call_1") == a_call()


async def test_postgres_ends_transactions_of_dead_processes(postgres: Any) -> None:
    database = Database(read_url(postgres.new_url()))
    show = sa.text("SHOW idle_in_transaction_session_timeout")

    assert await database.read(lambda connection: connection.scalar(show)) == "30s"
    await database.close()


async def test_postgres_ends_long_statements(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "STATEMENT_AT_MOST", 0.001)
    database = Database(read_url(postgres.new_url()))
    forever = sa.text("SELECT pg_sleep(3600)")

    with pytest.raises(StoreError, match="cancelled a statement after a minute; try again"):
        await database.read(lambda connection: connection.execute(forever))
    await database.close()


async def test_connections_have_keepalives_to_detect_a_cut_network(postgres: Any) -> None:
    wanted = {"keepalives_idle": "10", "tcp_user_timeout": "30000"}
    given = read_url(f"{postgres.new_url()}&keepalives_idle=99").url.query
    assert {name: given[name] for name in wanted} == {**wanted, "keepalives_idle": "99"}


@pytest.fixture
def one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow one connection for transactions and one for single statements, which every operation uses."""
    monkeypatch.setattr(databases, "WRITERS", 1)
    monkeypatch.setattr(databases, "SINGLE", 1)


@pytest.mark.usefixtures("one_connection")
async def test_when_one_connection_breaks_the_others_are_tested(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "TRUSTED", 1e9)
    async with opened(partial(open_tree_store, postgres.new_url())) as store:
        await store.create_thread(a_thread())
        await store.append([a_node("a")])
        await store.path("a")
        postgres.close_connections()

        with pytest.raises(StoreError, match="is shutting down; try again"):
            await store.path("a")
        await store.append([a_node("b", "a")])


@pytest.mark.usefixtures("one_connection")
@pytest.mark.parametrize("method", ["path", "append"])
async def test_a_compiled_statement_reports_a_broken_connection_once(
    method: str, postgres: Any
) -> None:
    given = {"path": "a", "append": [a_node("b", "a")]}[method]
    async with opened(partial(open_tree_store, postgres.new_url())) as store:
        await store.create_thread(a_thread())
        await store.append([a_node("a")])
        await store.path("a")
        work = partial(getattr(store, method), given)
        postgres.close_connections()

        with pytest.raises(StoreError, match="is shutting down; try again"):
            await work()
        await work()


async def test_normal_durability_is_an_option(tmp_path: Path) -> None:
    def synchronous(connection: sa.Connection) -> Any:
        return connection.scalar(sa.text("PRAGMA synchronous"))

    found: list[int] = []
    for option in ("", "?synchronous=normal"):
        database = Database(read_url(f"sqlite:///{tmp_path}/calls.db{option}"))
        found.append(await database.write(synchronous))
        await database.close()

    assert found == [2, 1]  # 2 is FULL, 1 is NORMAL


@pytest.fixture
def executions(monkeypatch: pytest.MonkeyPatch) -> list[sa.Connection]:
    """Return a list that receives the connection of each execution; many rows make one execution."""
    seen: list[sa.Connection] = []
    cursor = _sql._cursor

    def noted(connection: sa.Connection) -> Any:
        seen.append(connection)
        return cursor(connection)

    monkeypatch.setattr(_sql, "_cursor", noted)
    return seen


async def test_a_fork_takes_the_same_statements_for_any_number_of_branches(
    tmp_path: Path, executions: list[sa.Connection]
) -> None:
    """One statement writes the branches, and one reads the nodes that they follow."""
    counts: list[int] = []
    async with opened(partial(open_tree_store, f"sqlite:///{tmp_path / 'threads.db'}")) as store:
        await store.create_thread(a_thread())
        await store.append([a_node("a"), a_node("b", "a", "assistant", calls_tool("use"))])
        for number in (2, 50):
            executions.clear()
            await store.append([a_node(f"{number}.{n}", "b", "branch") for n in range(number)])
            counts.append(len(executions))
    assert counts[0] == counts[1] > 0


async def test_only_a_lease_may_be_lost_when_postgres_crashes(postgres: Any) -> None:
    """The effects of the first round follow its opening, so the opening must be durable."""
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    def is_lasting() -> bool:
        lasting, statements[:] = "SET LOCAL synchronous_commit TO off" not in statements, []
        return lasting

    async with opened(partial(open_store, postgres.new_url())) as store:
        await store.begin(a_call())
        event.listen(sa.Engine, "before_cursor_execute", note)
        try:
            statements.clear()
            await store.open_round("call_1", 0, "a", 1.0, 2.0)
            assert not is_lasting()
            await store.open_round("call_2", 0, "a", 1.0, 2.0, new=a_call("call_2"))
            assert is_lasting()
            await store.open_round("call_1", 0, "a", 1.0, 2.0, answers={"asked": "yes"})
            assert is_lasting()
            end = RoundRecord(0, "", "")
            await store.end_round("call_1", end, CallEvent.ASK, owner="a", deadline=1.0)
            assert is_lasting()
        finally:
            event.remove(sa.Engine, "before_cursor_execute", note)
