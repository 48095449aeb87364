"""No method of a caller's view reaches another caller's data, with any ids."""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.folding import BranchService, FoldingError, Status
from anabranch.folding._admission import Owner, account_name, shown_name
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock
from tests.folding.hosts import TASK

GIVEN: dict[str, Any] = {**TASK, "message": "mine", "tokens": 1, "reason": "mine"}
NAMES = {"branch_id", "session_id", "parent_branch_id"}
CALLERS = ["ida", "", "ida "]


def methods() -> dict[str, Mapping[str, inspect.Parameter]]:
    """Return the parameters of all methods by which a service uses its store, by name."""
    found = inspect.getmembers(BranchService, inspect.iscoroutinefunction)
    return {
        name: dict(list(inspect.signature(each).parameters.items())[1:])
        for name, each in found
        if not name.startswith("_") and name != "run"  # the host's method that expires branches
    }


async def outcome(service: BranchService, method: str, given: dict[str, Any]) -> str:
    """Return the caller's result, with the requested id replaced by a fixed word."""
    try:
        value = await getattr(service, method)(**given)
    except FoldingError as refusal:
        value = refusal
    text = repr(value)
    for name in sorted(NAMES & given.keys()):
        text = text.replace(repr(given[name]), name)
    return text


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("method", sorted(methods()))
async def test_a_branch_of_another_user_looks_missing(method: str, caller: str) -> None:
    """Excludes any method, present or future, that does not check the owner."""
    parameters = methods()[method]
    needed = {n for n, p in parameters.items() if p.default is p.empty} - NAMES
    assert needed <= GIVEN.keys(), f"say here with what {method} is called: {needed - GIVEN.keys()}"
    store, clock = open_branch_store("memory:"), ManualClock()
    host = BranchService(store, clock=clock)
    owner, other = host.of("bob"), host.of(caller)
    made = (await owner.create(**TASK, session_id="main")).branch
    inner = (await owner.create(**TASK, session_id="main")).branch
    before = await store.branches(made.session_id)
    ids = {
        "branch_id": [made.id, inner.id],
        "parent_branch_id": [made.id, inner.id],
        "session_id": ["main", made.session_id],
    }
    base = {name: GIVEN[name] for name in needed}
    for name in NAMES & parameters.keys():
        rest = {
            each: f"{each}_never"
            for each in NAMES - {name}
            if each in parameters and parameters[each].default is inspect.Parameter.empty
        }
        for named in ids[name]:
            theirs = await outcome(other, method, {**base, **rest, name: named})
            never = await outcome(
                BranchService(open_branch_store("memory:")).of(caller),
                method,
                {**base, **rest, name: "no"},
            )
            if (method, name) != (
                "create",
                "session_id",
            ):  # a method that makes a session for the caller
                assert theirs == never
    if not NAMES & parameters.keys():
        await getattr(other, method)(**base)
    assert await store.branches(made.session_id) == before, "nothing of it has changed"


async def test_a_caller_counts_only_its_own_expired_branches() -> None:
    """Excludes that a caller learns how many branches others had."""
    clock = ManualClock()
    host = BranchService(open_branch_store("memory:"), clock=clock)
    made = (await host.of("bob").create(**TASK)).branch
    clock.advance(400)
    assert await host.of("ida").expire() == 0
    timeout: Status = "timeout"
    assert (await host.status(branch_id=made.id) or made).status == timeout
    assert await host.expire() == 0, "it was closed all the same"


@given(principal=st.sampled_from(["", "ida", "@", "@/"]), name=st.text("@/xé\ud800", min_size=1))
def test_a_session_is_shown_by_an_unambiguous_name(principal: str, name: str) -> None:
    """The names of two owners never coincide, neither with each other nor with their accounts."""
    owner, other = Owner(principal), Owner("bob")
    stored = owner.stored_name(name)
    assert owner.owns(stored)
    assert not other.owns(stored)
    assert owner.stored_name(shown_name(stored)) == stored == owner.stored_name(stored)
    assert stored not in {account_name(stored), account_name(other.stored_name(name))}
