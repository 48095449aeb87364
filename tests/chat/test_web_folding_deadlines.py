"""A folded branch that waits for the user ends at its deadline, and the conversation continues."""

from typing import Any

import pytest

from anabranch.agents import Folding
from anabranch.chat._web.conversations import Conversations
from anabranch.folding import BranchService
from anabranch.messages import SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import calls
from tests.chat.machines import Machines, ends, events_of
from tests.chat.sleepers import seat
from tests.chat.web import reserve
from tests.folding.harness import heard

pytestmark = pytest.mark.usefixtures("nothing_done")


def folding(tool: str) -> Any:
    def decide(request: SampleRequest) -> Any:
        said = heard(request)
        if said == "go":
            task = {"description": "Sit", "prompt": "Find a seat.", "timeout_seconds": 60}
            return calls(("f", "branch_create", task))
        if "(branch br_" in said:
            return calls(("u", tool, {}), text="I ask.")
        return f"Outside: {said}"

    return decide


class Waiting(Machines):
    """A folded branch of a minute in which a tool asks."""

    def __init__(self, url: str, tool: str) -> None:
        super().__init__(url, folding(tool))
        self.branches = BranchService(open_branch_store("memory:"), clock=self.clock)

    async def due(self, process: Conversations) -> None:
        while due := [each for each in self.engine.wakes if each.not_before <= self.clock.now()]:
            self.engine.wakes.remove(due[0])
            await process.advance(due[0])


@pytest.mark.parametrize("tool", ["reserve", "seat"])
async def test_a_conversation_continues_at_a_folded_branchs_deadline(url: str, tool: str) -> None:
    """Excludes a conversation that waits for an answer that no tool can use."""
    here = Waiting(url, tool)
    async with here.process(Folding(here.branches), reserve, seat) as one:
        await here.begun(one)
        await here.due(one)
        assert await ends(one) == ["interrupt"]
        [pending] = await one.questions.open_in("t1")
        assert pending.continues_at == here.clock.now() + 60
        here.clock.advance(59)
        await here.due(one)
        assert await ends(one) == ["interrupt"]
        here.clock.advance(1)
        await here.due(one)
        assert await ends(one) == ["interrupt", "success"]
        assert await one.questions.open_in("t1") == []
        events = await events_of(one)
        said = "".join(e["delta"] for e in events if e["type"] == "TEXT_MESSAGE_CONTENT")
        assert "Outside: I ask." in said
        assert "timeout" in said
        assert here.engine.wakes == []
    [branch] = await here.branches.branches("t1")
    assert branch.status == "timeout"
