"""Records of branches from an earlier release."""

import json
from dataclasses import fields, replace

from anabranch.folding import BranchService
from anabranch.stores import open_branch_store
from anabranch.stores._branches import to_branch


async def test_a_branch_of_an_earlier_release_is_read() -> None:
    """Such a record lacks the newer fields."""
    store = open_branch_store("memory:")
    service = BranchService(store).of("ida")
    made = (await service.create("d", "p", session_id="s")).branch
    [*earlier, owner] = (getattr(made, each.name) for each in fields(made))
    assert owner == "ida"
    row = (json.dumps(earlier).encode(),)
    assert to_branch(row) == replace(made, owner=None)
    await store.close()
