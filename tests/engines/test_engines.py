"""Every engine keeps the promises of the port."""

import subprocess
import sys

import psycopg
import pytest
import sqlalchemy as sa

from anabranch.engines import DBOSEngine, Engine, InProcessEngine
from anabranch.engines._dbos import unwaited
from anabranch.errors import StoreError
from anabranch.testing import TestEngine
from tests.postgres import Server
from tests.suites.engine_checks import ENGINE_CHECKS, EngineCheck
from tests.suites.engine_samples import Worker

every_check = pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)


def passes(module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", f"tests.engines.{module}", *arguments]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@every_check
async def test_the_engine_in_process_keeps_the_promises_of_the_port(check: EngineCheck) -> None:
    await check(InProcessEngine)


@every_check
def test_dbos_keeps_the_promises_of_the_port(check: EngineCheck, postgres: Server) -> None:
    name = check.__name__
    passes("dbos_process", name, postgres.new_url(), f"dbos_{name}")


@pytest.mark.long
def test_over_dbos_a_run_of_a_chat_waits_for_a_worker_of_its_version(postgres: Server) -> None:
    passes("dbos_versions", postgres.new_url())


def test_over_dbos_wakes_lost_by_a_restored_engine_are_found_in_the_store(postgres: Server) -> None:
    passes("dbos_restored", postgres.new_url())


def test_no_commit_of_dbos_waits_for_the_disk(postgres: Server) -> None:
    url = sa.make_url(postgres.new_url())
    with psycopg.connect(unwaited(url)) as connection:
        found = connection.execute(
            "SELECT current_setting('synchronous_commit'), current_setting('search_path')"
        ).fetchone()
    [schema] = url.normalized_query["options"]
    assert found == ("off", schema.removeprefix("-csearch_path="))


@pytest.mark.parametrize(
    "engine",
    [InProcessEngine(), TestEngine(1), DBOSEngine("postgresql://127.0.0.1/unreached")],
    ids=lambda engine: type(engine).__name__,
)
async def test_an_engine_refuses_a_worker_that_may_advance_no_call(engine: Engine) -> None:
    said = r"concurrency must be at least 1, got 0\. Give the number"
    with pytest.raises(ValueError, match=said):
        await engine.work({"a": "1"}, Worker().advance, 0)


@pytest.mark.parametrize("url", ["sqlite:///engine.db", "memory:"])
def test_dbos_needs_postgres(url: str) -> None:
    with pytest.raises(StoreError, match="needs a Postgres that its workers share"):
        DBOSEngine(url)
