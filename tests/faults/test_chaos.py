"""No call is lost if processes are suspended, cut off or apart in time, and the database restarts.

The gate runs one kind of disturbance with a few calls. ``python -m tests.faults --chaos`` runs
several kinds together, with more calls. After each trial, a saboteur repeats every effect in the
ledger, and the verdict must find that.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.chaos import EVERY, Chaos, disturb, own_server, plan_in_chat, plan_of
from tests.faults.journey import STEPS
from tests.faults.ledger import HAPPENS, Ledger
from tests.faults.runs import Report
from tests.faults.stages import IN_CHAT
from tests.faults.verdict import wrong_in
from tests.postgres import Server
from tests.randomised import SEED, times

SPEED, AT_ONCE = 10.0, 6


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start a database server that these tests stop, suspend and cut off."""
    with own_server() as server:
        yield server


GATE: Chaos = "stop"
"""The kind that the gate runs.

In contrast to a killed process, a suspended one continues after its lease has run out.
"""


@pytest.mark.parametrize(
    "kind", [kind if kind == GATE else pytest.param(kind, marks=pytest.mark.long) for kind in EVERY]
)
async def test_calls_survive(kind: Chaos, server: Server, tmp_path: Path) -> None:
    runs = plan_of(f"{SEED}-{kind}", number=times(20, gate=6))
    report = await disturb(tmp_path, server, runs, [kind], speed=SPEED, at_once=AT_ONCE, times=1)
    assert report.wrong == []
    assert report.calls == len(runs)
    expect_a_saboteur_to_be_found(tmp_path, report)


@pytest.mark.long
async def test_calls_of_a_chat_survive_all_disturbances(server: Server, tmp_path: Path) -> None:
    """Two web processes and four workers: each answer takes effect, and each event is shown once."""
    runs = plan_in_chat(f"{SEED}-chat", number=10)
    report = await disturb(
        tmp_path, server, runs, EVERY, speed=SPEED, at_once=AT_ONCE, times=1, stage=IN_CHAT
    )
    assert report.wrong == []
    assert report.calls == len(runs)
    expect_a_saboteur_to_be_found(tmp_path, report)


def expect_a_saboteur_to_be_found(folder: Path, report: Report) -> None:
    """Repeat each effect and each undo in the ledger, immediately and in the same process.

    The verdict must find each repetition, except of the few effects that were in flight when that
    process was disturbed.
    """
    lines = Ledger(folder).read()
    sabotaged = [each for line in lines for each in [line] * (1 + (line.kind in HAPPENS))]
    found = [wrong.split(": ") for wrong in wrong_in(sabotaged, report.killed, (), STEPS)]
    wrong = {(call.split()[0], what.split(" happened ")[0]) for call, what in found}
    happened = [line for line in lines if line.kind in HAPPENS]
    missed = {(line.call, f"{line.kind} {line.number}") for line in happened} - wrong
    assert len(missed) <= len(happened) / 5
    for kind in HAPPENS:
        of_kind = {line.call for line in happened if line.kind == kind}
        assert of_kind == {call for call, what in wrong if what.startswith(kind)} & of_kind
