"""A process is killed inside an agent's tool: another continues the turn, with each effect once."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from anabranch.agents import Agent
from anabranch.messages import ElicitReply
from anabranch.tree import Node
from tests.agents.killed_agent import die, make_agent, open_both
from tests.suites.child_processes import Child


def fatal(tmp_path: Path, what: str) -> Path:
    """Return a ledger whose writer dies at the effect ``what``."""
    ledger = tmp_path / "ledger"
    Path(f"{ledger}.{what}").touch()
    return ledger


async def killed_at(tmp_path: Path, what: str) -> tuple[Agent, list[Node], Path]:
    """Run a turn in a process that dies at an effect; return the agent that continues it, and its nodes."""
    ledger = fatal(tmp_path, what)
    url = f"sqlite:///{tmp_path}/both.db"
    process = Child(die, partial(open_both, url), str(ledger))
    await process.ready()
    process.go()
    thread_id = await process.receive()
    with suppress(EOFError):
        assert await process.receive() is None, "it should have been killed"
    await process.end()
    agent = make_agent(open_both(url), str(ledger))
    return agent, list((await agent.store.tree(thread_id)).nodes), ledger


def effects(ledger: Path) -> tuple[list[str], set[str]]:
    """Return the effects in order, and the ids of the calls that made them."""
    lines = [line.split(" ", 1) for line in ledger.read_text(encoding="utf-8").splitlines()]
    return [what for what, _ in lines], {key.partition(":")[0] for _, key in lines}


@pytest.mark.long
async def test_a_call_killed_before_its_question_continues_at_its_place(tmp_path: Path) -> None:
    agent, nodes, ledger = await killed_at(tmp_path, "hold")
    [caller] = [node for node in nodes if node.tool_uses]
    end = await agent.resume(caller)
    done, names = effects(ledger)
    assert done == ["reserve", "hold", "book-3", "print-3"]
    assert names == {end.text.split()[0]}
    await agent.store.close()


@pytest.mark.parametrize("at", ["book-3", pytest.param("print-3", marks=pytest.mark.long)])
async def test_a_call_killed_after_its_question_continues_with_the_same_answer(
    tmp_path: Path, at: str
) -> None:
    agent, nodes, ledger = await killed_at(tmp_path, at)
    [question] = [node for node in nodes if node.kind == "question"]
    same = ElicitReply(action="accept", content={"number": 3})
    end = await agent.answer(question.id, same)
    done, names = effects(ledger)
    assert done == ["reserve", "hold", "book-3", "print-3"]
    assert names == {end.text.split()[0]}
    again = await agent.answer(
        question.id, same
    )  # the turn has ended, so that the result is repeated
    assert again.text == end.text
    assert effects(ledger)[0] == done
    await agent.store.close()
