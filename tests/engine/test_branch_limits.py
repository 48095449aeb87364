"""The limits of a branch, without a call: they only narrow."""

import pytest

from anabranch._engine.branch import Branch
from anabranch.errors import BranchDepthError
from anabranch.limits import UNLIMITED, Limits


def nested(*limits: Limits) -> list[Branch]:
    """Return branches inside one another, the outermost first."""
    branches: list[Branch] = []
    for number, own in enumerate(limits):
        branches.append(Branch(branches[-1] if branches else None, f"b{number}", own))
    return branches


def test_an_inner_limit_never_widens_an_outer_one() -> None:
    outer, inner = nested(Limits(max_depth=1), Limits(max_depth=9))
    assert (outer.limits.max_depth, inner.limits.max_depth) == (1, 1)
    inner.check_depth()
    with pytest.raises(BranchDepthError):
        Branch(inner, "b2", UNLIMITED).check_depth()


async def test_without_a_deadline_none_has_passed() -> None:
    (branch,) = nested(UNLIMITED)
    await branch.check_deadlines()
    assert not branch.is_expired
