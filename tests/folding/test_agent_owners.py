"""The branches of a conversation belong to its owner: they use the owner's share, and show only the
owner's data.
"""

from typing import Any

import pytest

from anabranch.agents import Agent, Folding
from anabranch.folding import Branch, BranchService, FoldingSettings
from anabranch.messages import SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Thread
from tests.agents.memory import MemoryTrees
from tests.folding.harness import create, heard, in_branch, returns
from tests.folding.hosts import TASK


async def said_in(branches: BranchService, thread: Thread, decide: Any) -> str:
    """Return the model's answer to one message in a thread."""
    store, clock = MemoryTrees(), ManualClock()
    agent = Agent(store, MockModel(decide), tools=[Folding(branches)], clock=clock)
    await store.create_thread(thread)
    return (await agent.say(thread.id, "go")).text


def once(request: SampleRequest) -> Any:
    if in_branch(request):
        return returns("done")
    return create("count") if request.messages[-1].text == "go" else heard(request)


async def test_the_conversations_of_one_user_share_the_open_branches() -> None:
    """Excludes a user who takes all places by opening one conversation after the other."""
    limits = FoldingSettings(max_concurrent_per_caller=2)
    branches = BranchService(open_branch_store("memory:"), settings=limits, clock=ManualClock())
    for _ in range(2):
        await branches.of("bob").create(**TASK)
    assert "FOLD013" in await said_in(branches, Thread("t1", 0.0, owner="bob"), once)
    assert await said_in(branches, Thread("t2", 0.0, owner="ida"), once) == "done"
    assert await said_in(branches, Thread("t3", 0.0), once) == "done"
    [record] = await branches.of("ida").branches("t2")
    assert (record.status, record.result) == ("completed", "done")


@pytest.mark.parametrize("owner", ["ida", None])
async def test_the_id_of_a_thread_cannot_name_the_session_of_another(owner: str | None) -> None:
    """A client chooses thread ids, so an id may look like the name of another session in the store."""
    branches = BranchService(open_branch_store("memory:"), clock=ManualClock())
    theirs: Branch = (await branches.of("bob").create(**TASK, session_id="main")).branch

    def looking(request: SampleRequest) -> Any:
        if request.messages[-1].text == "go":
            return calls(("s", "branch_status", {"branch_id": theirs.id}))
        return heard(request)

    assert "FOLD001" in await said_in(
        branches, Thread(theirs.session_id, 0.0, owner=owner), looking
    )
    assert await said_in(branches, Thread(theirs.session_id, 0.0, owner=owner), once) == "done"
    assert await branches.of("bob").branches("main") == [theirs]
