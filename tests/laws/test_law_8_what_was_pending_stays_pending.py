"""Law 8: a question that was open before a crash is open after it, with a store.

The server that asked is gone. Another server, with the same file and the same keys, takes the
answers. The tests use the modern edge and sagas, with the real client.
"""

import gc
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from anabranch import Accepted, BranchContext, tool
from anabranch.mcp import Durability, create_server
from anabranch.stores import open_store
from tests.diary import DONE
from tests.mcp.harness import ERAS, KEY, MODERN, Answers, accept, call_once, connected
from tests.sagas.harness import Number, call_saga, resume_saga

pytestmark = pytest.mark.usefixtures("nothing_done")


def prepare() -> str:
    DONE.append("prepare")
    return "prepared"


def conclude(total: int) -> int:
    DONE.append(f"conclude {total}")
    return total


async def ask(ctx: BranchContext, what: str) -> int:
    answer = await ctx.elicit(Number, what)
    assert isinstance(answer, Accepted)
    return answer.content.n


@tool
async def collect(ctx: BranchContext) -> str:
    """Run a step, ask two users concurrently, and conclude."""
    await ctx.step(prepare)
    numbers = await ctx.gather(ctx.branch(ask, "left?"), ctx.branch(ask, "right?"))
    return f"total {await ctx.step(conclude, sum(numbers))}"


def restarted(folder: Path) -> MCPServer[Any]:
    """Return a server as a new process would create it; the old server has closed nothing."""
    gc.collect()
    store = open_store(f"sqlite:///{folder}/calls.db?synchronous=normal")
    policy = Durability(store, spill=0)  # with spill=0, all state is in the store
    return create_server("laws", [collect], keys=[KEY], store=policy)


async def test_questions_of_a_stateless_call_outlive_the_server(tmp_path: Path) -> None:
    answers = Answers(lambda _: accept(n=2))
    async with connected(restarted(tmp_path), MODERN, answers) as client:
        before = await call_once(client, "collect")
    given = {step: {"action": "accept", "content": {"n": 2}} for step in before["inputRequests"]}
    state = before["requestState"]
    async with connected(restarted(tmp_path), MODERN, answers) as client:
        after = await call_once(client, "collect", state=state, responses={})
        assert after["inputRequests"] == before["inputRequests"]
        state = after["requestState"]
    async with connected(restarted(tmp_path), MODERN, answers) as client:
        last = await call_once(client, "collect", state=state, responses=given)
    async with connected(restarted(tmp_path), MODERN, answers) as client:
        again = await call_once(client, "collect", state=state, responses=given)
    assert last["structuredContent"] == again["structuredContent"] == {"result": "total 4"}
    assert DONE == ["prepare", "conclude 4"]


@pytest.mark.parametrize("era", ERAS)
async def test_steps_of_a_saga_outlive_the_server(tmp_path: Path, era: str) -> None:
    answers = Answers(lambda _: accept(n=2))
    async with connected(restarted(tmp_path), era, answers) as client:
        before = await call_saga(client, "collect", {})
    steps = [
        {"stepId": step["stepId"], "result": {"action": "accept", "content": {"n": 2}}}
        for step in before["steps"]
    ]
    results: list[dict[str, Any]] = []
    for _ in range(2):
        async with connected(restarted(tmp_path), era, answers) as client:
            results.append(await resume_saga(client, before["sagaToken"], *steps))
    assert results == [{"content": [{"type": "text", "text": "total 4"}]}] * 2
    assert DONE == ["prepare", "conclude 4"]
