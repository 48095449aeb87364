"""A process opens one database with eight connections, for every kind of record."""

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from anabranch.cli import main
from anabranch.cli._combined_server import ServerRecipe
from anabranch.cli._option_groups import AgentOptions, AgentTools, Persistence, TurnOptions
from anabranch.cli._server_commands import parts_of
from anabranch.errors import StoreError
from anabranch.stores import open_branch_store, open_memory_store, open_stores
from tests.agents.memory import MemoryTrees
from tests.patience import PATIENCE
from tests.postgres import Server
from tests.stores.opened import CONNECTIONS, opened, use_all_connections


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect all databases that this process opens."""
    return opened(monkeypatch)


async def test_a_process_with_everything_has_eight_connections(
    databases: list[Any], postgres: Server
) -> None:
    url = sa.make_url(postgres.new_url()).update_query_dict({"application_name": "counted"})
    turn = TurnOptions(folding=True, memory=True)
    options = AgentOptions(store=url.render_as_string(hide_password=False), turn=turn)
    parts = parts_of((), options)
    [database] = databases
    counted: list[int] = []

    def count() -> None:
        with psycopg.connect(f"host={postgres.folder} user=postgres dbname={url.database}") as own:
            [found] = own.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
            ).fetchall()
        counted.extend(found)

    everyone = threading.Barrier(CONNECTIONS, count)

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT 1"))
        everyone.wait(PATIENCE)

    async with parts.open():
        await use_all_connections(database, work)
    assert counted == [8]


def test_a_server_opens_one_database(databases: list[Any], tmp_path: Path) -> None:
    recipe = ServerRecipe(
        ("tests/recorded/trips.py",),
        None,
        ("k" * 32,),
        Persistence(f"sqlite:///{tmp_path}/all.db"),
        agent_tools=AgentTools(folding=True, memory=True),
    )
    recipe.make_server()
    assert len(databases) == 1


def test_a_chat_opens_one_database(databases: list[Any], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("")
    line = ["chat", "--memory", "--folding", "--store", f"sqlite:///{tmp_path}/all.db"]
    assert main([*line, "--script", str(tmp_path / "lines")]) == 0
    assert len(databases) == 1


async def test_stores_that_share_a_database_are_closed_together(tmp_path: Path) -> None:
    calls, trees = open_stores(f"sqlite:///{tmp_path}/all.db")
    memories, branches = open_memory_store(trees), open_branch_store(trees)
    await memories.close()
    await branches.close()
    assert await memories.waiting() == 0
    assert await branches.branch("b") is None
    await calls.close()
    with pytest.raises(StoreError, match="has been closed"):
        await memories.waiting()
    with pytest.raises(StoreError, match="has been closed"):
        await branches.branch("b")


def test_a_store_of_another_kind_has_no_connections_to_share() -> None:
    for open_one in (open_memory_store, open_branch_store):
        with pytest.raises(StoreError, match="A MemoryTrees has no connections to share"):
            open_one(MemoryTrees())
