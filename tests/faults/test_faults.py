"""Workers killed with SIGKILL lose no call and repeat no effect.

The gate runs a few of the planned runs, and the long run performs all. ``python -m tests.faults``
performs them as well.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.faults.__main__ import disturb
from tests.faults.ledger import HAPPENS, MARKS, Kind, Line
from tests.faults.runs import plan
from tests.faults.verdict import broken_rules, by_call
from tests.randomised import LONG, SEED

RUNS = None if LONG else 4
"""The number of calls; ``None`` stands for one call for each place at which a worker may die."""


async def test_calls_survive_killed_workers(url: str, tmp_path: Path) -> None:
    report = await disturb(tmp_path, url, seed=SEED, number=RUNS, speed=5.0, at_once=8)
    assert report.wrong == []
    assert len(report.killed) >= len(plan(SEED, RUNS))
    assert report.repeated > 0


def mark(kind: Literal["away", "back"]) -> Line:
    return Line(kind, "", 0, "", 9)


def line(kind: Kind, number: int, *, pid: int = 1, key: str = "journey") -> Line:
    return Line(kind, "run", number, f"call:{key}/step.{number}", pid)


@pytest.mark.parametrize(
    ("lines", "done", "broken"),
    [
        ([line("step", 1), line("step", 1)], False, "step 1 happened 2 times"),
        ([line("undo", 1), line("undo", 1)], False, "undo 1 happened 2 times"),
        (
            [line("step", 1, pid=9), line("seen", 1, pid=9), line("step", 1)],
            False,
            "step 1 happened after it had been seen",
        ),
        ([line("step", 1)], False, "step 1 was not undone"),
        ([line("step", 1, pid=9), line("seen", 1, pid=9)], False, "step 1 was not undone"),
        ([line("step", 5), line("undo", 5)], False, "step 5 has no undo, and was undone"),
        ([line("step", 1), line("step", 1, key="other")], False, "step 1 happened under 2 keys"),
        (
            [line("step", 1), line("step", 2), line("undo", 1), line("undo", 2)],
            False,
            "step 1 was undone before step 2",
        ),
        ([line("undo", 2)], False, "{'call:journey/step.2'} never happened, and was undone"),
        ([line("step", 1)], True, "it is done, and 1 steps have happened"),
        ([line("step", 1), line("undo", 1)], True, "it is done, and 1 times something was undone"),
    ],
)
def test_the_verdict_finds_each_fault(lines: list[Line], done: bool, broken: str) -> None:
    """Process 9 was killed."""
    assert broken in list(broken_rules(lines, {9}, done=done))


def test_the_verdict_allows_the_gap() -> None:
    lines = [line("step", 1, pid=9), line("step", 1), line("undo", 1, pid=8), line("undo", 1)]
    assert list(broken_rules(lines, {8, 9}, done=False)) == []
    assert list(broken_rules([line("step", 1, pid=9)], {9}, done=False)) == []


def test_the_verdict_allows_repetitions_by_a_worker_that_was_out_of_reach() -> None:
    away, back = mark("away"), mark("back")
    in_flight = [line("step", 1, pid=9), away, line("step", 1), line("seen", 1), back]
    late = [away, line("step", 1), line("seen", 1), back, line("step", 1, pid=9)]
    meanwhile = [away, line("step", 1, pid=9), back, line("step", 1, pid=9)]
    undone = [line("undo", 1, pid=9), away, line("undo", 1), back]
    for lines in (in_flight, late, meanwhile):
        assert list(broken_rules([*lines, *undone], (), done=False)) == []
        without = [line for line in [*lines, *undone] if line.kind not in MARKS]
        assert len(list(broken_rules(without, (), done=False))) >= 2


@pytest.mark.parametrize("kind", HAPPENS)
def test_the_verdict_refuses_repetitions_by_other_workers_or_at_other_times(kind: Kind) -> None:
    done: Kind = "seen" if kind == "step" else "undone"
    away, back = mark("away"), mark("back")
    once, ended, other = line(kind, 1, pid=9), line(done, 1, pid=9), line(kind, 1)
    before = [once, ended, other, away, back]
    after = [away, back, once, ended, once]
    one_more = [away, back, line(kind, 2, pid=9), line(done, 2, pid=9), once, other]
    by_others = [away, other, other, back]
    for lines in (before, after, one_more, by_others):
        assert f"{kind} 1 happened 2 times" in list(broken_rules(lines, (), done=False))


def test_the_verdict_refuses_another_key_of_a_worker_that_was_out_of_reach() -> None:
    lines = [line("step", 1, pid=9), mark("away"), line("step", 1, key="other")]
    assert "step 1 happened under 2 keys" in list(broken_rules(lines, (), done=False))


def test_the_lines_of_each_call_include_the_marks_of_the_ledger() -> None:
    first, second = line("step", 1), replace(line("step", 1), key="other:journey/step.1")
    lines = [mark("away"), first, mark("back"), second]
    assert by_call(lines) == {
        "call": [mark("away"), first, mark("back")],
        "other": [mark("away"), mark("back"), second],
    }


def test_the_verdict_allows_branches_to_be_undone_in_any_order() -> None:
    did = [line("step", number) for number in (4, 6, 9)]
    undone = [line("undo", number) for number in (6, 9, 4)]
    assert list(broken_rules([*did, *undone], (), done=False)) == []


def test_a_whole_plan_reaches_every_boundary_in_every_scenario() -> None:
    places = {(run.scenario, point) for run in plan(SEED, None) for point in run.points}
    assert ("success", "gap-step-20") in places
    assert ("failure", "before-undo-1") in places
    assert ("expired", "gap-undo-16") in places
    assert len(places) == 60 + 60 + 32 + 26
