"""Every engine does what the port promises."""

from __future__ import annotations

from functools import partial

import pytest

from anabranch.engines import DBOSEngine, InProcessEngine
from anabranch.testing.suites import ENGINE_CHECKS, EngineCheck
from tests.postgres import Server

every_check = pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)


@every_check
async def test_the_engine_in_process_does_what_the_port_promises(check: EngineCheck) -> None:
    await check(InProcessEngine)


@every_check
async def test_dbos_does_what_the_port_promises(check: EngineCheck, postgres: Server) -> None:
    schema = f"dbos_{check.__name__}"
    await check(partial(DBOSEngine, postgres.new_url(), schema=schema))
