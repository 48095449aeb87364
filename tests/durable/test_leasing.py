"""The lease on a call: its holder, forked processes, and the log of failed renewals."""

import asyncio
import logging
import os
import subprocess
import sys

import pytest

from anabranch._durable import CallStore, Lease
from anabranch.testing import ManualClock
from tests.durable.stores import Modelled, Observed
from tests.engine.clocks import Obliging
from tests.suites.call_samples import a_call

FORKED = """
import asyncio, os
from anabranch._durable.lease import Lease
from anabranch._durable.engine import UnknownProcesses
from anabranch._aio import SystemClock

class Owners:
    processes = UnknownProcesses()

    async def take_to_undo(self, call_id, owner, now, until, *, is_due):
        os.write(1, f"{owner}\\n".encode())

    async def find(self, call_id):
        return None

def take():
    asyncio.run(Lease(Owners(), "call_1", SystemClock(), seconds=1).take_to_undo(is_due=True))

child = os.fork()
take()
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_process_does_not_take_its_parents_leases_for_its_own() -> None:
    command = [sys.executable, "-c", FORKED]
    owners = subprocess.check_output(command, text=True, env=os.environ).split()
    assert len(owners) == 2
    assert len(set(owners)) == 2


class Forgetful(Observed):
    """A store that fails to renew a lease."""

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        self.done.put_nowait("failed")
        raise KeyError("no")


async def test_a_failed_renewal_of_a_lease_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = Forgetful(Modelled()), ManualClock()
    await store.begin(a_call())
    with caplog.at_level(logging.ERROR):
        async with Lease(store, "call_1", clock, seconds=9) as lease:
            await lease.open_round(0)
            await asyncio.sleep(0)  # the renewal runs from now on
            clock.advance(3)
            await store.until("failed")
    assert "call 'call_1': its lease was not renewed" in caplog.text


async def test_a_lease_from_a_clock_an_hour_ahead_ends_after_one_lease(store: CallStore) -> None:
    ahead, clock = ManualClock(1_000_003_600.0), Obliging()
    await store.begin(a_call())
    dead = Lease(store, "call_1", ahead, seconds=15)
    await dead.open_round(0)
    waiting = Lease(store, "call_1", clock, seconds=15)
    async with waiting:
        assert await waiting.open_round(0) is not None
        assert 15 <= clock.now() - 1_000_000_000.0 < 300
    async with dead:
        pass
