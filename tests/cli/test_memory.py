"""``anabranch memory`` and ``anabranch serve --memory``: the real commands, and their arguments."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from anabranch.cli._options import STORE
from anabranch.memory import Draft, FinishedBranch, ReasoningBank, Scopes
from anabranch.stores import open_memory_store
from anabranch.testing import ManualClock
from tests.cli.running import Run
from tests.cli.stopping import ANABRANCH, SERVE, started, url_of


async def make(url: str) -> list[str]:
    store = open_memory_store(url)
    bank = ReasoningBank(store, scopes=Scopes(project="web"), clock=ManualClock(1000.0))
    recorded = [
        await bank.record(Draft(title=title, description="When \x1bit fails", content=content))
        for title, content in (("Flaky tests", "Run them twice."), ("Builds", "Clean the cache."))
    ]
    await bank.queue(FinishedBranch(branch_id="br_1", description="Find it", status="failed"))
    await store.close()
    return [memory.id for memory in recorded]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/memory.db"
    monkeypatch.setenv(STORE, url)
    return url


@pytest.fixture
def ids(url: str) -> list[str]:
    """Return the ids of two memories in the store that the environment names."""
    return asyncio.run(make(url))


def test_memories_are_listed_and_searched(run: Run, ids: list[str]) -> None:
    assert [each["id"] for each in run.value("memory", "list", "--limit", "1")] == ids[1:]
    (found,) = run.value("memory", "search", "the test was failing twice", "--limit", "1")
    assert (found["id"], found["title"], found["confidence"]) == (ids[0], "Flaky tests", 0.75)
    assert run.value("memory", "search", "quicksand") == []


def test_a_terminal_shows_one_line_for_each_memory(run: Run, ids: list[str]) -> None:
    _, out, _ = run.at_terminal("memory", "list")
    first, second, *_ = out.splitlines()
    assert first == f"{ids[1]}  0.75  project  Builds"
    assert second.startswith("    When ")
    assert "\x1b" not in out


def test_a_memory_is_shown_and_forgotten(run: Run, ids: list[str]) -> None:
    whole = run.value("memory", "show", ids[0])
    assert (whole["content"], whole["created_at"]) == ("Run them twice.", 1000.0)
    assert run.value("memory", "export") == [whole, run.value("memory", "show", ids[1])]

    assert run.value("memory", "forget", ids[0]) == {"forgotten": ids[0]}

    assert [each["id"] for each in run.value("memory", "export")] == ids[1:]
    for command in ("show", "forget"):
        status, out, err = run("memory", command, ids[0])
        assert (status, out) == (1, "")
        assert "has no memory" in err


def test_queued_branches_are_distilled(run: Run, ids: list[str], tmp_path: Path) -> None:
    lesson = {"title": "Lexer", "description": "When parsing fails", "content": "Look there first."}
    script = tmp_path / "replies.json"
    script.write_text(json.dumps([{"text": json.dumps([lesson])}]))

    done = run.value("memory", "distill", "--model", f"script:{script}")

    assert done == {"branches": 1, "waiting": 0}
    assert run.value("memory", "list", "--limit", "1")[0]["title"] == "Lexer"


def lessons(tmp_path: Path) -> str:
    """Return the name of a model that learns one lesson from a failed branch."""
    lesson = {"title": "Lexer", "description": "When parsing fails", "content": "Look there first."}
    script = tmp_path / "replies.json"
    script.write_text(json.dumps([{"when": "Find it", "text": json.dumps([lesson])}]))
    return f"script:{script}"


@pytest.mark.parametrize(
    "command", [SERVE, (*ANABRANCH, "web", "--port", "0")], ids=["serve", "web"]
)
def test_a_server_with_a_model_learns_from_queued_branches(
    run: Run, ids: list[str], url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    options = ["--memory", "--store", url, "--model", lessons(tmp_path)]
    with started(*command, *options) as server:
        url_of(server)
        asyncio.run(until_learned(url))
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0

    assert run.value("memory", "list")[0]["title"] == "Lexer"


async def until_learned(url: str) -> None:
    store = open_memory_store(url)
    while await store.waiting():
        pass
    await store.close()


def test_a_chat_with_a_model_learns_from_queued_branches(
    run: Run, ids: list[str], url: str, tmp_path: Path
) -> None:
    """The chat also offers the memory's tools. The target's tool waits until the worker is done."""
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "lines").write_text("/wait\n/memory_search query=parsing\n")
    line = ["chat", str(tmp_path / "waits.py"), "--memory", "--store", url]
    line += ["--script", str(tmp_path / "lines"), "--model", lessons(tmp_path)]

    assert run(*line).out == "empty\n[]\n"  # the queued branch belongs to another project
    assert run.value("memory", "list")[0]["title"] == "Lexer"


WAITS = """
import os
from anabranch import BranchContext, tool
from anabranch.stores import open_memory_store

@tool
async def wait(ctx: BranchContext) -> str:
    \"\"\"Wait until the queue is empty.\"\"\"
    store = open_memory_store(os.environ["ANABRANCH_STORE"])
    while await store.waiting():
        pass
    await store.close()
    return "empty"
"""
