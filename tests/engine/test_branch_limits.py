"""The limits of a branch, without a call: they only narrow, and every ancestor is charged."""

import pytest

from anabranch._engine.branch import Branch
from anabranch.errors import BranchDepthError, BranchTokenError
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


def test_tokens_are_charged_to_every_ancestor_and_the_innermost_budget_is_named() -> None:
    outer, middle, inner = nested(Limits(max_tokens=10), UNLIMITED, Limits(max_tokens=6))
    inner.charge(5)
    assert [branch.spent for branch in (outer, middle, inner)] == [5, 5, 5]
    with pytest.raises(BranchTokenError, match="b2"):
        inner.check_tokens(2)
    middle.check_tokens(5)
    with pytest.raises(BranchTokenError, match="b0"):
        middle.charge(6)
    assert outer.spent == 11


def test_what_remains_is_the_least_of_all_budgets() -> None:
    outer, middle, inner = nested(Limits(max_tokens=10), UNLIMITED, Limits(max_tokens=20))
    assert nested(UNLIMITED)[0].remaining_tokens() is None
    assert inner.remaining_tokens() == 10
    inner.charge(4)
    assert [branch.remaining_tokens() for branch in (outer, middle, inner)] == [6, 6, 6]


def test_what_was_spent_before_counts() -> None:
    branch = Branch(None, "b", Limits(max_tokens=10), 9)
    with pytest.raises(BranchTokenError):
        branch.check_tokens(2)


async def test_without_a_deadline_none_has_passed() -> None:
    (branch,) = nested(UNLIMITED)
    await branch.check_deadlines()
    assert not branch.is_expired
