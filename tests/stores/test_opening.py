"""The first use of a store creates or finds its tables, and changes no other table."""

import hashlib
import sqlite3
import stat
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from anabranch.errors import StoreError
from anabranch.stores import open_store, open_stores, open_tree_store
from anabranch.stores._database import STAMP, statements
from anabranch.stores._engines import read_url, switch_to_wal
from tests.suites.call_samples import OpenCallStore, a_call
from tests.suites.child_processes import in_processes
from tests.suites.expectations import opened
from tests.suites.tree_samples import a_node, a_thread

SET_STAMP = "UPDATE anabranch_schema SET stamp = '{}'"


def execute(url: str, statement: str, **values: Any) -> list[tuple[Any, ...]]:
    """Execute a statement outside of the store; return its rows."""
    engine = sa.create_engine(read_url(url).url)
    with engine.begin() as connection:
        done = connection.execute(sa.text(statement), values)
        rows = [tuple(row) for row in done] if done.returns_rows else []
    engine.dispose()
    return rows


def digest() -> str:
    """Return the digest of all tables, in both dialects."""
    made = [*statements("sqlite"), *statements("postgresql+psycopg")]
    return hashlib.sha256("\n".join(sorted(made)).encode()).hexdigest()[:16]


def test_the_stamp_is_the_digest_of_the_definition() -> None:
    """After a change of a table, set :data:`STAMP` to the digest that this test shows."""
    assert digest() == STAMP


async def begin(open_it: OpenCallStore, name: str) -> str:
    async with opened(open_it) as store:
        return (await store.begin(a_call(name))).call_id


async def test_simultaneous_processes_create_the_tables_once(url: str) -> None:
    names = ["one", "two", "three"]

    assert await in_processes(begin, partial(open_store, url), names) == names

    assert execute(url, "SELECT stamp FROM anabranch_schema") == [(STAMP,)]


async def test_a_store_of_another_release_is_refused_unchanged(url: str) -> None:
    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())
    execute(url, SET_STAMP.format("other"))

    async with opened(partial(open_store, url)) as store:
        with pytest.raises(StoreError, match=r"another release.*'other'.*nothing was changed"):
            await store.begin(a_call("call_2"))
    execute(url, SET_STAMP.format(STAMP))

    async with opened(partial(open_store, url)) as store:
        assert await store.find("call_1") == a_call()
        assert await store.find("call_2") is None


async def test_tables_of_another_program_in_the_database_stay(url: str) -> None:
    execute(url, "CREATE TABLE version (theirs TEXT)")
    execute(url, "INSERT INTO version VALUES ('theirs')")

    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())

    assert execute(url, "SELECT theirs FROM version") == [("theirs",)]


async def test_a_store_without_its_stamp_is_refused(url: str) -> None:
    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())
    execute(url, "DELETE FROM anabranch_schema")

    async with opened(partial(open_store, url)) as store:
        with pytest.raises(
            StoreError, match=r"no stamp.*restore it from a copy.*Nothing was changed"
        ):
            await store.begin(a_call("call_2"))


async def test_foreign_tables_with_our_names_are_reported_as_foreign(url: str) -> None:
    execute(url, "CREATE TABLE anabranch_entry (theirs INTEGER)")
    execute(url, "INSERT INTO anabranch_entry VALUES (7)")

    async with opened(partial(open_store, url)) as store:
        with pytest.raises(
            StoreError, match=r"another release or program.*name another.*Nothing was"
        ):
            await store.begin(a_call())
        assert execute(url, "SELECT theirs FROM anabranch_entry") == [(7,)]
        execute(url, "DROP TABLE anabranch_entry")

        assert await store.begin(a_call()) == a_call(), "the start that failed has left nothing"


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE anabranch_entry",
        "ALTER TABLE anabranch_call RENAME COLUMN deadline TO dead",
        "ALTER TABLE anabranch_schema RENAME COLUMN stamp TO number",
    ],
)
async def test_a_store_reports_tables_that_do_not_fit_its_stamp(url: str, change: str) -> None:
    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())
    execute(url, change)

    async def use() -> None:
        async with opened(partial(open_store, url)) as store:
            await store.begin(a_call("call_2"))
            await store.record("call_1", 0, {"step": "{}"})

    with pytest.raises(StoreError, match=r"restore it from a copy, or name another") as refused:
        await use()
    assert str(refused.value).count(". ") == 0


async def test_a_file_that_is_no_database_is_refused_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"Dear diary, " * 100)

    async with opened(lambda: open_store(f"sqlite:///{file}")) as store:
        with pytest.raises(StoreError, match="is not a SQLite database"):
            await store.begin(a_call())

    assert file.read_bytes() == b"Dear diary, " * 100


async def test_a_damaged_file_is_refused_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "calls.db"
    async with opened(lambda: open_store(f"sqlite:///{file}")) as store:
        await store.begin(a_call())
    damaged = file.read_bytes()[:4096] + b"\xff" * (file.stat().st_size - 4096)
    file.write_bytes(damaged)

    async with opened(lambda: open_store(f"sqlite:///{file}")) as store:
        with pytest.raises(StoreError, match="is damaged"):
            await store.find("call_1")

    assert file.read_bytes() == damaged


async def test_a_locked_file_is_reported_and_works_once_it_is_free(tmp_path: Path) -> None:
    open_it: OpenCallStore = partial(open_store, f"sqlite:///{tmp_path}/calls.db?timeout=0.05")
    async with opened(open_it) as store:
        await store.begin(a_call())
        other = sqlite3.connect(tmp_path / "calls.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreError, match=r"is locked by another program.*timeout="):
            await store.record("call_1", 0, {"a": "1"})
        assert await store.entries("call_1", 0) == {}
        other.execute("ROLLBACK")
        other.close()

        assert await store.record("call_1", 0, {"a": "2"}) == {"a": "2"}


async def test_a_locked_table_is_reported_and_works_once_it_is_free(postgres: Any) -> None:
    url = postgres.new_url()
    async with opened(partial(open_store, f"{url}&timeout=0.05")) as store:
        await store.begin(a_call())
        engine = sa.create_engine(read_url(url).url)
        with engine.begin() as connection:
            connection.execute(sa.text("LOCK TABLE anabranch_call"))

            with pytest.raises(StoreError, match=r"is locked by another program.*timeout="):
                await store.record("call_1", 0, {"a": "1"})
        engine.dispose()

        assert await store.record("call_1", 0, {"a": "2"}) == {"a": "2"}


async def test_an_unreachable_server_is_named() -> None:
    async with opened(partial(open_store, "postgresql://me:secret@127.0.0.1:1/calls")) as store:
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/calls cannot be reached") as caught:
            await store.find("call_1")

    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_missing_database_is_reported(postgres: Any) -> None:
    url = postgres.new_url().replace("@/", "@/no_")

    async with opened(partial(open_store, url)) as store:
        with pytest.raises(StoreError, match=r"cannot be reached: .*does not exist"):
            await store.find("call_1")


async def test_missing_rights_are_reported(postgres: Any) -> None:
    async with opened(partial(open_store, postgres.new_url(user="stranger"))) as store:
        with pytest.raises(StoreError, match="does not let this user make or use its tables"):
            await store.find("call_1")


async def test_a_new_file_is_readable_by_its_owner_only_and_gets_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "new" / "folder" / "calls.db"

    async with opened(lambda: open_store(f"sqlite:///{file}")) as store:
        await store.begin(a_call())
        modes = {stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}

    assert modes == {0o600}


async def test_an_impossible_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file" / "calls.db", tmp_path):
        async with opened(partial(open_store, f"sqlite:///{path}")) as store:
            with pytest.raises(StoreError, match=r"cannot be opened: .*directory"):
                await store.find("call_1")


def test_a_switch_to_wal_is_not_retried_after_another_error(tmp_path: Path) -> None:
    file = tmp_path / "calls.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE note (name TEXT)")

    with (
        closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        switch_to_wal(connection)


def test_the_switch_to_wal_waits_for_the_holder_of_the_file(tmp_path: Path) -> None:
    """SQLite itself does not wait here, so two new stores on one file would collide."""
    holder = sqlite3.connect(tmp_path / "calls.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    statements: list[str] = []

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            statements.append(sql)
            if sql.startswith("BEGIN"):
                holder.execute("ROLLBACK")
            return super().execute(sql, *arguments)

    connection = sqlite3.connect(tmp_path / "calls.db", isolation_level=None, factory=Connection)
    switch_to_wal(connection)

    assert statements == [
        "PRAGMA journal_mode = WAL",
        "BEGIN EXCLUSIVE",
        "ROLLBACK",
        "PRAGMA journal_mode = WAL",
    ]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    holder.close()


async def test_an_unreadable_node_is_reported(url: str) -> None:
    async with opened(partial(open_tree_store, url)) as store:
        await store.create_thread(a_thread())
        await store.append([a_node("a")])
        execute(url, "UPDATE anabranch_node SET content = :damaged", damaged=b'[{"type": 1}]')

        with pytest.raises(StoreError, match="a node that this release cannot read"):
            await store.path("a")


@pytest.mark.parametrize("open_it", [open_store, open_stores, open_tree_store])
def test_a_store_without_its_packages_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, open_it: Any
) -> None:
    for name in [name for name in sys.modules if name.startswith("anabranch.stores.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(StoreError, match=r"needs the package 'sqlalchemy'.*\[stores\]"):
        open_it("memory:")
