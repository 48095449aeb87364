"""A store whose tables were dropped, renamed, restamped or replaced fails with a clear ``StoreError``.

Each example changes a store from outside, and then uses it in every way. Each operation works, or
raises a ``StoreError`` that tells the operator what to do.
"""

import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from anabranch._durable import OPEN, CallEvent, RoundRecord
from anabranch.errors import StoreError, UnknownCallError
from anabranch.memory import Draft, Filter, ReasoningBank, Scopes
from anabranch.stores import (
    open_branch_store,
    open_memory_store,
    open_run_events,
    open_store,
    open_tree_store,
)
from anabranch.stores._database import STAMP
from anabranch.stores._engines import read_url
from tests.postgres import Server
from tests.randomised import SEED, times
from tests.suites.call_samples import a_call
from tests.suites.tree_samples import a_node, a_thread

STAMPS = [STAMP, f"{STAMP} ", "0001", "", "anabranch"]
OTHERS = [
    "CREATE TABLE {table} (theirs INTEGER NOT NULL, second TEXT)",
    "CREATE VIEW {table} AS SELECT 1 AS theirs",
    "CREATE TABLE {table} AS SELECT * FROM anabranch_schema",
]


class Altered:
    """Changes a store from outside."""

    def __init__(self, url: str, source: random.Random) -> None:
        self.engine = sa.create_engine(read_url(url).url)
        self.source = source

    def execute(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.text(statement))

    def tables(self) -> list[str]:
        names = sa.inspect(self.engine).get_table_names()
        return sorted(each for each in names if each.startswith("anabranch_"))

    def change(self) -> str:
        """Make a random change, and return its statement."""
        pick = self.source.choice
        table = pick(self.tables() or ["anabranch_call"])
        statement = pick(
            [
                f"UPDATE anabranch_schema SET stamp = '{pick(STAMPS)}'",  # noqa: S608
                "DELETE FROM anabranch_schema",
                f"INSERT INTO anabranch_schema VALUES ('{pick(STAMPS)}')",  # noqa: S608
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME TO anabranch_{pick(['old', 'entry', 'node'])}",
                self._of_column(table),
            ]
        )
        other = pick(OTHERS).format(table=table)
        for each in [statement, *([other] if statement.startswith("DROP TABLE") else [])]:
            try:
                self.execute(each)
            except exc.SQLAlchemyError:
                return ""  # an earlier change made this one impossible
        return statement

    def _of_column(self, table: str) -> str:
        if table not in self.tables():  # no table of the store is left
            return "DELETE FROM anabranch_schema"
        columns = [each["name"] for each in sa.inspect(self.engine).get_columns(table)]
        name = self.source.choice(columns)
        return self.source.choice(
            [
                f"ALTER TABLE {table} RENAME COLUMN {name} TO theirs",
                f"ALTER TABLE {table} DROP COLUMN {name}",
            ]
        )


def uses(url: str, stack: AsyncExitStack) -> Iterator[Callable[[], Awaitable[Any]]]:
    calls, trees = open_store(url), open_tree_store(url)
    events, memories = open_run_events(trees), open_memory_store(url)
    branches = open_branch_store(url)
    for store in (calls, trees, memories, branches):
        stack.push_async_callback(store.close)
    bank = ReasoningBank(memories, scopes=Scopes(project="p"))
    yield partial(calls.begin, a_call())
    yield partial(calls.find, "call_1")
    yield partial(calls.calls, 10)
    yield partial(calls.record, "call_1", 0, {"step": "{}"})
    yield partial(calls.calls, 10, states=OPEN)
    yield partial(calls.open_round, "call_1", 1, "a", 0.0, 1.0, answers={"asked": "yes"})
    yield partial(calls.answer, "call_1", {"other": "no"}, by="page")
    yield partial(calls.answers, "call_1")
    yield partial(calls.undone, "call_1", "step")
    yield partial(calls.undone_steps, "call_1")
    yield partial(calls.renew, "call_1", "a", 2.0)
    yield partial(calls.adopt, "call_1", "2", "a")
    end = RoundRecord(1, "a", "b")
    yield partial(calls.end_round, "call_1", end, CallEvent.ASK, owner="a", deadline=9.0)
    yield partial(calls.expired, 2.0, 10)
    yield partial(calls.take_to_undo, "call_1", "a", 1.0, 2.0)
    yield partial(calls.fail, "call_1", "why", "a")
    yield partial(calls.move, "call_1", CallEvent.RAISE, owner="a", deadline=1.0)
    yield calls.open_calls
    yield partial(calls.prune, 2.0, 10)
    yield partial(trees.create_thread, a_thread())
    yield partial(trees.threads, 10)
    yield partial(trees.append, [a_node("n")])
    yield partial(trees.tree, "t")
    yield partial(trees.delete_thread, "t")
    yield partial(events.last, "run")
    yield partial(events.prune, 2.0, 10)
    yield partial(bank.record, Draft(title="A", description="b", content="c"))
    yield partial(memories.search, ["lock"], Filter())
    yield partial(memories.waiting)


async def attack(url: str, source: random.Random) -> None:
    altered = Altered(url, source)
    changes = [altered.change() for _ in range(source.randint(1, 3))]
    altered.engine.dispose()
    async with AsyncExitStack() as stack:
        for use in uses(url, stack):
            try:
                await use()
            except UnknownCallError:
                pass  # the store could not begin the call
            except StoreError as error:
                said = str(error)
                assert said.endswith("."), (changes, said)
                assert "\n" not in said, (changes, said)
                assert "failed" not in said, (changes, said)
                assert ";" in said or "another release" in said or "Try again" in said, (
                    changes,
                    said,
                )


@pytest.mark.parametrize("number", range(times(16, gate=6)))
async def test_a_changed_sqlite_file_works_or_reports_a_remedy(
    number: int, template: Path, tmp_path: Path
) -> None:
    file = tmp_path / "calls.db"
    shutil.copy(template, file)
    await attack(f"sqlite:///{file}", random.Random(f"{SEED} {number}"))


@pytest.fixture(scope="module")
async def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("stores") / "calls.db"
    store = open_store(f"sqlite:///{file}")
    await store.begin(a_call("call_0"))
    await store.close()
    return file


@pytest.mark.parametrize("number", range(times(4, gate=1)))
async def test_a_changed_postgres_schema_works_or_reports_a_remedy(
    number: int, postgres: Server
) -> None:
    url = postgres.new_url()
    store = open_store(url)
    await store.begin(a_call("call_0"))
    await store.close()
    await attack(url, random.Random(f"{SEED} {number}"))


@pytest.mark.parametrize("number", range(times(4, gate=2)))
async def test_a_new_file_works_next_to_tables_of_another_program(
    number: int, tmp_path: Path
) -> None:
    url, source = f"sqlite:///{tmp_path}/calls.db", random.Random(f"{SEED} {number}")
    altered = Altered(url, source)
    altered.execute("CREATE TABLE anabranch_schema (stamp TEXT)")
    for table in source.sample(["call", "entry", "node", "thread", "branch", "memory"], 2):
        altered.execute(source.choice(OTHERS).format(table=f"anabranch_{table}"))
    await attack(url, source)
