"""A process is killed with a hundred branches open: the next process finds all of them."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.folding import BranchService
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.killed_process import SETTINGS
from tests.randomised import SEED, times


@pytest.mark.parametrize("seed", range(times(20, gate=1)))
async def test_all_branches_survive_a_kill_with_budgets_and_timeouts(
    seed: int, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/branches.db"
    command = [sys.executable, "-m", "tests.folding.killed_process", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220 - to kill
        assert process.stdout is not None
        for _ in range(random.Random(f"{SEED}/{seed}").randrange(1, 600)):
            process.stdout.readline()
        process.kill()

    clock = ManualClock()
    service = BranchService(open_branch_store(url), SETTINGS, clock=clock)
    try:
        found = await service.store.branches("s")
        outer = [each for each in found if each.parent_id is None]
        assert len(outer) == 100
        for branch in outer:
            inner = [each for each in found if each.parent_id == branch.id]
            held = sum(each.budget_total for each in inner if each.is_open)
            spent = sum(each.budget_used for each in inner if not each.is_open)
            assert branch.budget_reserved == (held if branch.is_open else 0)
            assert branch.budget_used >= spent
        session = await service.store.transaction(lambda rows: rows.session("s"))
        assert session is not None
        assert session.open == sum(each.is_open for each in found)
        assert session.budget_reserved == sum(each.budget_total for each in outer if each.is_open)

        clock.advance(max(each.deadline for each in found) - clock.now())
        assert await service.expire() == session.open - sum(
            each.is_open and each.parent_id is not None for each in found
        )
        after = await service.store.branches("s")
        assert not any(each.is_open for each in after)
        assert {each.status for each in after if each.parent_id is None} <= {"timeout", "failed"}
    finally:
        await service.store.close()
