"""Every engine does what the port promises."""

from __future__ import annotations

from functools import partial

import pytest

from anabranch.engines import DBOSEngine, InProcessEngine
from anabranch.errors import StoreError
from anabranch.testing.suites import ENGINE_CHECKS, EngineCheck
from tests.postgres import Server

every_check = pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)

# What DBOS takes from a queue in the moment in which it ends, it leaves without awaiting it.
dbos_ends = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@every_check
async def test_the_engine_in_process_does_what_the_port_promises(check: EngineCheck) -> None:
    await check(InProcessEngine)


@dbos_ends
@every_check
async def test_dbos_does_what_the_port_promises(check: EngineCheck, postgres: Server) -> None:
    await check(partial(DBOSEngine, postgres.new_url(), schema=f"dbos_{check.__name__}"))


@pytest.mark.parametrize("url", ["sqlite:///engine.db", "memory:"])
def test_dbos_needs_postgres(url: str) -> None:
    with pytest.raises(StoreError, match="needs a Postgres that its workers share"):
        DBOSEngine(url)
