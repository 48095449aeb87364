"""A store tells dead processes from living ones, and other processes continue a dead process's calls."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
import sqlalchemy as sa

from anabranch._aio import SystemClock
from anabranch._durable import Lease, UnknownProcesses
from anabranch.errors import StoreError
from anabranch.stores import CallStore, _processes, open_store
from tests.patience import PATIENCE
from tests.postgres import Server
from tests.suites.call_samples import OpenCallStore, a_call
from tests.suites.child_processes import Child

FOR_HOURS = 36_000.0
"""Seconds of a lease that does not run out during a test."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each check for dead processes count, without the pause between two checks."""
    monkeypatch.setattr(_processes, "APART", 0.0)


def files_in(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("*-process-*")]


async def until_dead(store: CallStore, name: str) -> None:
    with anyio.fail_after(PATIENCE):
        while name not in await store.processes.dead([name]):  # noqa: ASYNC110 - a server notices
            await anyio.sleep(0.01)


async def owner_of(store: CallStore, call_id: str) -> str:
    found = await store.find(call_id)
    assert found is not None
    assert found.lease is not None
    return found.lease.owner


async def live(open_store: OpenCallStore, name: str, report: Callable[[Any], None]) -> None:
    """Enter, report the process's name, and live until killed."""
    store = open_store()
    await store.processes.enter()
    report(store.processes.name)
    await anyio.sleep_forever()


async def run_a_call(open_store: OpenCallStore, name: str, report: Callable[[Any], None]) -> None:
    """Take the lease on a call, and hold it until killed."""
    store = open_store()
    await store.begin(a_call())
    lease = Lease(store, "call_1", SystemClock(), seconds=FOR_HOURS)
    await lease.open_round(0)
    report(lease.owner)
    await anyio.sleep_forever()


async def look(open_store: OpenCallStore, name: str, report: Callable[[Any], None]) -> None:
    """Report whether any of several checks takes a process for dead."""
    store = open_store()
    looks: list[Collection[str]] = [await store.processes.dead([name]) for _ in range(10)]
    await store.close()
    report(any(name in each for each in looks))


async def begun(work: Any, open_store: OpenCallStore, name: str) -> tuple[Child, Any]:
    child = Child(work, open_store, name)
    await child.ready()
    child.go()
    return child, await child.receive()


async def test_a_killed_process_is_found_dead(open_shared: OpenCallStore) -> None:
    store = open_shared()
    child, name = await begun(live, open_shared, "")
    for _ in range(10):
        assert name not in await store.processes.dead([name])
    child.kill()
    await child.end()
    await until_dead(store, name)
    await store.close()


async def test_a_process_with_a_closed_store_is_found_dead(open_shared: OpenCallStore) -> None:
    first, second = open_shared(), open_shared()
    await first.processes.enter()
    name = first.processes.name
    assert name not in await second.processes.dead([name])
    await first.close()
    await until_dead(second, name)
    await second.close()


async def test_an_observer_in_the_same_process_releases_no_lock(open_shared: OpenCallStore) -> None:
    """Closing any descriptor of a file would release all locks of the process on that file."""
    first, second = open_shared(), open_shared()
    await first.processes.enter()
    name = first.processes.name
    assert name not in await second.processes.dead([name])
    await second.close()
    child, is_dead = await begun(look, open_shared, name)
    await child.end()
    assert not is_dead
    await first.close()


async def test_a_process_that_enters_twice_has_one_lock_until_its_end(
    open_shared: OpenCallStore,
) -> None:
    store, other = open_shared(), open_shared()
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(store.processes.enter)
    name = store.processes.name
    for _ in range(5):
        assert name not in await other.processes.dead([name])
    await store.close()
    await until_dead(other, name)
    await other.close()


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "00000000000", "ffffffff\0"])
async def test_an_impossible_process_name_is_not_checked(
    open_shared: OpenCallStore, name: str, tmp_path: Path
) -> None:
    store = open_shared()
    for _ in range(5):
        assert not await store.processes.dead([name])
    assert not files_in(tmp_path)
    await store.close()


async def test_a_call_of_a_killed_process_is_continued_before_its_lease_ends(
    open_shared: OpenCallStore,
) -> None:
    """The lease would last for hours."""
    child, owner = await begun(run_a_call, open_shared, "first")
    child.kill()
    await child.end()
    store = open_shared()
    async with Lease(store, "call_1", SystemClock(), seconds=15.0) as lease:
        with anyio.fail_after(PATIENCE):
            await lease.open_round(0)
        assert await owner_of(store, "call_1") == lease.owner != owner
    await store.close()


async def test_effects_of_a_call_of_a_killed_process_can_be_undone(
    open_shared: OpenCallStore,
) -> None:
    child, owner = await begun(run_a_call, open_shared, "first")
    store = open_shared()
    async with Lease(store, "call_1", SystemClock(), seconds=FOR_HOURS) as lease:
        for _ in range(5):
            assert await lease.take_to_undo(is_due=False) is None
        assert await owner_of(store, "call_1") == owner
        child.kill()
        await child.end()
        with anyio.fail_after(PATIENCE):
            while await lease.take_to_undo(is_due=False) is None:  # noqa: ASYNC110 - looks count
                await anyio.sleep(0.01)
        assert await owner_of(store, "call_1") == lease.owner
    await store.close()


async def test_a_call_of_a_living_process_is_not_taken(open_shared: OpenCallStore) -> None:
    child, owner = await begun(run_a_call, open_shared, "first")
    store = open_shared()
    async with Lease(store, "call_1", SystemClock(), seconds=15.0) as lease:
        with anyio.move_on_after(1.0) as waiting:
            await lease.open_round(0)
        assert waiting.cancelled_caught
    assert await owner_of(store, "call_1") == owner
    child.kill()
    await child.end()
    await store.close()


async def test_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/calls.db"
    left = tmp_path / "calls.db-process-0123456789ab"
    left.touch()
    store = open_store(url)
    await store.processes.enter()
    assert files_in(tmp_path) == [f"calls.db-process-{store.processes.name}"]
    await store.close()
    assert not files_in(tmp_path)


async def test_a_file_removed_before_its_lock_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process that enters meanwhile takes this process for dead, and removes the file."""
    url = f"sqlite:///{tmp_path}/calls.db"
    store, other = open_store(url), open_store(url)
    looks = [other.processes.enter]

    class Overtaken(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN") and looks:
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, looks.pop()()).result()
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Overtaken))
    await store.processes.enter()
    assert not looks
    assert not await other.processes.dead([store.processes.name])
    await store.close()
    await other.close()


async def test_a_process_cannot_enter_while_another_locks_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that checks the file holds the lock only briefly. A longer lock means an equal name."""
    monkeypatch.setattr(_processes, "LOCKED_AT_MOST", 0.01)
    store = open_store(f"sqlite:///{tmp_path}/calls.db")
    file = tmp_path / f"calls.db-process-{store.processes.name}"
    with closing(sqlite3.connect(file, isolation_level=None)) as holding:
        holding.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"next to .*: database is locked"):
            await store.processes.enter()
    await store.processes.enter()
    await store.close()
    assert not files_in(tmp_path)


async def test_a_store_reports_that_it_cannot_create_its_process_file(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/missing/calls.db")
    with pytest.raises(StoreError, match=r"No file can be made and locked next to .*: unable to"):
        await store.processes.enter()
    await store.close()


class Watcher:
    """Reads, over a separate connection, which backend holds the lock of a process in Postgres."""

    def __init__(self, url: str, name: str) -> None:
        ours = sa.make_url(url).set(drivername="postgresql")
        self.connection = psycopg.connect(
            ours.render_as_string(hide_password=False), autocommit=True
        )
        self.number = int(name, 16)

    def holder(self, *, granted: bool = True) -> int | None:
        """Return the backend that holds the lock, or, with ``granted=False``, waits for the lock."""
        found = self.connection.execute(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted = %s",
            [self.number, granted],
        ).fetchone()
        return None if found is None else int(found[0])

    def break_off(self) -> int | None:
        """Terminate the connection that holds the lock; return its backend."""
        holder = self.holder()
        self.connection.execute("SELECT pg_terminate_backend(%s)", [holder])
        return holder

    async def until(self, is_so: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE):
            while not is_so():  # noqa: ASYNC110 - another thread connects
                await anyio.sleep(0.01)


@contextmanager
def watching(url: str, name: str) -> Generator[Watcher]:
    watcher = Watcher(url, name)
    with watcher.connection:
        yield watcher


async def test_a_process_whose_connection_breaks_takes_its_lock_again(postgres: Server) -> None:
    url = postgres.new_url()
    store, other = open_store(url), open_store(url)
    await store.processes.enter()
    name = store.processes.name
    with watching(url, name) as watcher:
        first = watcher.break_off()
        await watcher.until(lambda: watcher.holder() not in {None, first})
    for _ in range(5):
        assert name not in await other.processes.dead([name])
    await other.close()
    await store.close()


@contextmanager
def many_files() -> Generator[None]:
    """Open more files than ``select`` supports."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_process_with_many_streams_lives(postgres: Server) -> None:
    """The lock's connection then has a descriptor that ``select`` refuses."""
    url = postgres.new_url()
    store = open_store(url)
    with many_files():
        await store.processes.enter()
        with watching(url, store.processes.name) as watcher:
            first = watcher.break_off()
            await watcher.until(lambda: watcher.holder() not in {None, first})
            await store.close()
            await watcher.until(lambda: watcher.holder() is None)


async def test_a_store_closes_while_its_process_waits_for_the_lock(postgres: Server) -> None:
    """The server has not noticed yet that the connection with the lock broke."""
    url = postgres.new_url()
    store = open_store(url)
    await store.processes.enter()
    with watching(url, store.processes.name) as watcher, watching(url, "0") as stale:
        take = ThreadPoolExecutor(1)
        taken = take.submit(
            stale.connection.execute,
            "SELECT pg_advisory_lock(%s, %s)",
            [_processes.LOCKS, watcher.number],
        )
        await watcher.until(lambda: watcher.holder(granted=False) is not None)
        watcher.break_off()  # then the next waiting backend gets the lock
        taken.result()
        take.shutdown()
        await watcher.until(lambda: watcher.holder(granted=False) is not None)
        with anyio.fail_after(PATIENCE):
            await store.close()


async def test_a_store_closes_while_its_server_is_away(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.new_url()
    store = open_store(url)
    await store.processes.enter()
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(*_: Any, **__: Any) -> Any:
        loop.call_soon_threadsafe(refused.set)
        raise psycopg.OperationalError("refused")

    with watching(url, store.processes.name) as watcher:
        monkeypatch.setattr(psycopg.Connection, "connect", refuse)
        watcher.break_off()
        async with asyncio.timeout(PATIENCE):
            await refused.wait()
    await store.close()


async def test_a_process_cannot_enter_a_closed_store(
    open_shared: OpenCallStore, tmp_path: Path
) -> None:
    store = open_shared()
    await store.processes.enter()
    await store.close()
    with pytest.raises(StoreError, match=r"The store .* has been closed"):
        await store.processes.enter()
    assert not files_in(tmp_path)


async def test_a_process_without_its_lock_finds_no_process_dead(postgres: Server) -> None:
    url = postgres.new_url()
    store = open_store(url)
    await store.processes.enter()
    processes: Any = store.processes
    mine, processes.name = processes.name, "00000000"  # a name without a lock
    for _ in range(5):
        assert await processes.dead(["7fffffff"]) == ()
    processes.name = mine
    await store.close()


async def test_a_store_without_process_checks_finds_no_process_dead() -> None:
    processes = UnknownProcesses()
    await processes.enter()
    assert not await processes.dead([processes.name, "0" * 12])
