"""With the grants of the page on workers, web processes and workers run, and other roles write nothing."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.chat.fleet import Fleet
from tests.chat.web import events_in, message
from tests.postgres import Server

PAGE = Path(__file__).parents[2] / "docs" / "chat-workers.md"
FIRST = ("chat.anabranch_node", "dbos.workflow_status")


@pytest.fixture
def granted() -> Iterator[Server]:
    """Start a separate server with the grants of the page, since roles belong to a whole server."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-"))
    server = Server(folder, database="app")
    server.share()
    try:
        [grants] = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        with connected(server, "postgres") as superuser:
            superuser.execute(grants.encode())
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def connected(server: Server, role: str) -> psycopg.Connection:
    return psycopg.connect(f"host={server.folder} user={role} dbname=app", autocommit=True)


async def test_only_processes_with_the_grants_of_the_page_can_write(
    tmp_path: Path, granted: Server
) -> None:
    fleet = Fleet(tmp_path, f"postgresql://anabranch@/app?host={granted.folder}")
    (tmp_path / "script.json").write_text('[{"text": "Hello."}]')
    async with fleet.web() as (_, client), fleet.worker():
        events = events_in((await client.post("/agui", json=message("hello"))).text)
        assert events[-1]["type"] == "RUN_FINISHED"
    with connected(granted, "reports") as reports:
        assert reports.execute("SELECT count(*) FROM chat.anabranch_node").fetchone() == (2,)
        tables = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname = ANY(%s)"
        found = sorted(name for (name,) in reports.execute(tables, [["chat", "dbos", "public"]]))
        assert {*FIRST} < {*found}
        assert not [name for name in found if name.startswith("public.")]
        for name in found:
            schema, table = name.split(".")
            for statement in (
                "DELETE FROM {}",
                "INSERT INTO {} DEFAULT VALUES",
                "SELECT 1 FROM {}",
            ):
                if (schema, statement[:6]) != ("chat", "SELECT"):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        reports.execute(sql.SQL(statement).format(sql.Identifier(schema, table)))
