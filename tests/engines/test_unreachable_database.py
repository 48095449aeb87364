"""Without its database, DBOS reports one sentence with the cause, and logs no record."""

import logging
import socket

import pytest

from anabranch.engines._dbos import DBOSEngine
from anabranch.errors import StoreError
from tests.suites.engine_samples import a_wake


async def test_an_unreachable_database_is_reported_in_one_sentence_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = DBOSEngine(f"postgresql://me:secret@127.0.0.1:{port}/chat")
    dbos = logging.getLogger("dbos")
    dbos.setLevel(logging.NOTSET)
    with pytest.raises(StoreError) as raised:
        await engine.wake(a_wake("call"))
    await engine.close()
    said = str(raised.value)
    assert said.startswith(
        f"The engine's database postgresql://me:***@127.0.0.1:{port}/chat cannot be reached: "
    )
    assert "refused" in said
    assert "\n" not in said
    assert caplog.messages == []
