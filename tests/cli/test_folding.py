"""``--folding`` of ``serve`` and ``chat``: the tools are offered, and branches are stored."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from anabranch.cli import _memory
from anabranch.cli._combined_server import ServerRecipe
from anabranch.cli._memory import open_bank, open_branches
from anabranch.cli._option_groups import AgentTools, Persistence
from anabranch.folding import BranchService
from anabranch.memory import Draft, ReasoningBank
from anabranch.stores import open_branch_store, open_memory_store
from tests.cli.running import Run
from tests.docs.pages import ROOT
from tests.folding.hosts import TASK
from tests.folding.watched import Watched

BRANCH_TOOLS = ["branch_create", "branch_return", "branch_status", "branch_report"]


def recipe(*targets: str, store: str | None = None) -> ServerRecipe:
    return ServerRecipe(
        targets, None, ("k" * 32,), Persistence(store), agent_tools=AgentTools(folding=True)
    )


@pytest.mark.parametrize("targets", [[], [str(ROOT / "examples" / "wizard.py")]])
def test_a_server_offers_branches_with_and_without_a_target(targets: list[str]) -> None:
    server: Any = recipe(*targets).make_server().server
    names = list(server._tool_manager._tools)
    assert names[-4:] == BRANCH_TOOLS
    assert len(names) == 4 + len(targets)


async def call(server: Any, tool: str, **given: Any) -> dict[str, Any]:
    async with Client(server) as client:
        result = await client.call_tool(tool, given)
    assert not result.is_error, result
    assert result.structured_content is not None
    content: dict[str, Any] = result.structured_content
    return content


async def test_a_branch_survives_the_server_and_begins_with_memories(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/all.db"
    memories = open_memory_store(url)
    draft = Draft(
        title="Counting cards", description="When cards are counted.", content="Sort them first."
    )
    await ReasoningBank(memories).record(draft)
    await memories.close()

    service = open_branches(url, open_bank(url))
    created = await service.create(
        "Counting cards", "Count the cards. My key: sk-ant-api03-" + "x" * 95
    )
    assert "x" * 20 not in created.branch.prompt
    assert [item.title for item in created.injected] == ["Counting cards"]
    returned = await service.complete("52", branch_id=created.branch.id, extract_memory=True)
    assert returned.memory_queued
    await service.store.close()

    after = open_branch_store(url)
    assert await after.branch(created.branch.id) == returned.branch
    await after.close()


def test_a_chat_folds_its_subtasks(tmp_path: Path, run: Run) -> None:
    replies = [
        {
            "tool_calls": [
                {"name": "branch_create", "arguments": {"description": "count", "prompt": "count"}}
            ]
        },
        {"tool_calls": [{"name": "branch_return", "arguments": {"message": "52 cards"}}]},
        {"text": "There are 52."},
    ]
    (tmp_path / "model.json").write_text(json.dumps(replies))
    (tmp_path / "lines").write_text("How many?\n")
    url, model = f"sqlite:///{tmp_path}/chat.db", f"script:{tmp_path}/model.json"
    line = ["chat", "--folding", "--thread", "t", "--store", url, "--model", model]
    assert run(*line, "--script", str(tmp_path / "lines")).out == "There are 52.\n"
    nodes = run.value("tree", "export", "t", "--store", url)["nodes"]
    [start] = [node for node in nodes if node["kind"] == "branch"]
    assert "count" in start["content"][-1]["text"]


def test_branches_are_reported_as_queued_without_a_learning_model(tmp_path: Path, run: Run) -> None:
    (tmp_path / "model.json").write_text("[]")
    (tmp_path / "lines").write_text("")
    line = ["chat", "--folding", "--store", f"sqlite:///{tmp_path}/chat.db"]
    line += ["--script", str(tmp_path / "lines")]
    model = ["--model", f"script:{tmp_path}/model.json"]
    for more, is_said in (
        ([], True),
        (["--memory"], True),
        (model, True),
        (["--memory", *model], False),
    ):
        status, _, err = run(*line, *more)
        assert status == 0
        assert ("are queued until `anabranch memory distill`" in err) is is_said


@pytest.mark.parametrize("option", ["--folding", "--memory"])
@pytest.mark.parametrize("command", ["serve", "chat", "web"])
def test_without_the_search_for_secrets_nothing_begins(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """Branches and the memory have one rule: text that cannot be searched for secrets is not stored."""
    monkeypatch.setitem(sys.modules, "detect_secrets", None)
    err = run.refusal(command, option, "--store", f"sqlite:///{tmp_path}/all.db")
    assert f"`anabranch {command}` needs the package 'detect_secrets'" in err
    assert "[memory]" in err


async def test_a_server_has_the_settings_of_its_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excludes a configuration that is validated while the server uses the defaults."""
    settings = tmp_path / "folding.json"
    settings.write_text('{"context_folding": {"default_budget": 700, "max_depth": 3}}')
    monkeypatch.setenv("ANABRANCH_FOLDING_FILE", str(settings))
    monkeypatch.setenv("ANABRANCH_FOLDING_MAX_DEPTH", "1")
    server: Any = recipe().make_server().server
    task = {"description": "d", "prompt": "p", "session_id": "s"}
    assert (await call(server, "branch_create", **task))["budget_allocated"] == 700
    async with Client(server) as client:
        deeper = await client.call_tool("branch_create", task)
    assert deeper.is_error
    assert "FOLD004" in str(deeper.content)


def test_a_setting_that_is_wrong_is_named(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("ANABRANCH_FOLDING_MAX_DEPTH", "none")
    assert "max_depth of context folding" in run.refusal("serve", "--folding")


async def test_a_folding_server_closes_branches_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()

    def opened(*given: Any, **options: Any) -> BranchService:
        return watched.service

    monkeypatch.setattr(_memory, "open_branches", opened)
    made = ServerRecipe(
        (), None, ("k" * 32,), Persistence(None), agent_tools=AgentTools(folding=True)
    ).make_server()
    await watched.service.create(**TASK, timeout_seconds=1)
    watched.clock.advance(2)
    async with asyncio.timeout(20), made.around:
        await watched.ended.wait()
    assert watched.kinds == ["created", "timeout"]
