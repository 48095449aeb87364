"""The limits of a branch, without a call: a limit only narrows."""

import pytest

from anabranch._budget import UNLIMITED, Limits
from anabranch._engine.branch import Branch
from anabranch.errors import BranchDepthError


def nested(*limits: Limits) -> list[Branch]:
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


def test_a_depth_counts_from_its_tool() -> None:
    root = Branch(None, "root", Limits(max_depth=3))
    called = Branch(root, "called", Limits(max_depth=1), is_tool=True)
    inner = Branch(called, "inner", Limits(max_depth=1))
    assert [branch.limits.max_depth for branch in (root, called, inner)] == [3, 2, 2]
    again = Branch(inner, "again", Limits(max_depth=9), is_tool=True)
    assert (again.depth, again.tool_depth, again.limits.max_depth) == (3, 3, 2)
