"""A process is killed after another server's round, and before the record of that round."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch.agents import RemoteTools
from anabranch.messages import ElicitReply
from anabranch.tree import open_questions
from tests.agents.killed_remote import die, make_agent, noted, serve
from tests.suites.child_processes import Child


@asynccontextmanager
async def working(work: Any, folder: Path) -> AsyncGenerator[tuple[Child, str]]:
    """Run a process; yield the process and its first report."""
    child = Child(work, partial(Path, folder), "")
    await child.ready()
    child.go()
    try:
        yield child, str(await child.receive())
    finally:
        child.kill()
        await child.end()


@pytest.mark.timeout(180)  # two processes import the SDK
@pytest.mark.parametrize("fatal", ["book", pytest.param("reserve", marks=pytest.mark.long)])
async def test_a_killed_agent_repeats_one_round_of_a_server_and_no_effect(
    tmp_path: Path, fatal: str
) -> None:
    async with working(serve, tmp_path) as (_, url):
        async with working(partial(die, url=url, fatal=fatal), tmp_path) as (killed, thread_id):
            with suppress(EOFError):
                assert await killed.receive() is None, "it should have been killed"
        async with RemoteTools(url) as remote:
            agent = make_agent(tmp_path, remote)
            nodes = (await agent.store.tree(thread_id)).nodes
            await agent.resume(next(node for node in nodes if node.tool_uses))
            [question] = open_questions(await agent.store.tree(thread_id))
            assert question.text == "How many, Ida 1?"
            reply = ElicitReply(action="accept", content={"number": 2})
            end = await agent.answer(question.id, reply)
    assert end.text == "Ida 1 accept"
    assert noted(str(tmp_path / "ledger")) == ["reserve", "named", "book", "print"]
    await agent.store.close()
