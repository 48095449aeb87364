"""Processes that are suspended, cut off or apart in time, and a database that restarts, lose no call.

A few runs each; ``python -m tests.faults --chaos`` has more of them, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chaos import EVERY, Chaos, disturb, own_server, plan_in_chat, plan_of
from tests.faults.stages import IN_CHAT
from tests.postgres import Server

SPEED, AT_ONCE = 10.0, 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A database server that these tests stop, suspend and cut off."""
    with own_server() as server:
        yield server


@pytest.mark.parametrize("kind", ["stop", "restart", "cut", "clocks"])
async def test_calls_survive(kind: Chaos, server: Server, tmp_path: Path) -> None:
    runs = plan_of(seed=len(kind), number=6)
    report = await disturb(tmp_path, server, runs, [kind], speed=SPEED, at_once=AT_ONCE, times=1)
    assert report.wrong == []
    assert report.calls == len(runs)


async def test_calls_of_a_chat_survive_all_of_it(server: Server, tmp_path: Path) -> None:
    """Two web processes and four workers; each answer is acted upon, and each event shown once."""
    runs = plan_in_chat(seed=3, number=10)
    report = await disturb(
        tmp_path, server, runs, EVERY, speed=SPEED, at_once=AT_ONCE, times=1, stage=IN_CHAT
    )
    assert report.wrong == []
    assert report.calls == len(runs)
