"""``anabranch memory`` and ``anabranch serve --memory``: the real commands, and their arguments."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli._options import STORE
from anabranch.memory import Draft, FinishedBranch, ReasoningBank, Scopes
from anabranch.stores import open_memory_store
from anabranch.testing import ManualClock


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
    """The ids of two memories in the store that the environment names."""
    return asyncio.run(make(url))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["memory", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    status, out, err = run(capsys, *arguments)
    assert (status, err) == (0, "")
    return json.loads(out)


def test_the_real_command_prints_json_alone(ids: list[str], url: str) -> None:
    command = [sys.executable, "-m", "anabranch", "memory", "list", "--store", url]
    done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")

    assert done.stderr == ""
    assert [each["id"] for each in json.loads(done.stdout)] == ids[::-1]


def test_memories_are_listed_and_searched(
    capsys: pytest.CaptureFixture[str], ids: list[str]
) -> None:
    assert [each["id"] for each in shown(capsys, "list", "--limit", "1")] == ids[1:]
    (found,) = shown(capsys, "search", "the test was failing twice", "--limit", "1")
    assert (found["id"], found["title"], found["confidence"]) == (ids[0], "Flaky tests", 0.75)
    assert shown(capsys, "search", "quicksand") == []


def test_on_a_terminal_they_are_lines(
    capsys: pytest.CaptureFixture[str], ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    _, out, _ = run(capsys, "list")

    first, second, *_ = out.splitlines()
    assert first == f"{ids[1]}  0.75  project  Builds"
    assert second.startswith("    When ")
    assert "\x1b" not in out


def test_one_is_shown_whole_and_forgotten(
    capsys: pytest.CaptureFixture[str], ids: list[str]
) -> None:
    whole = shown(capsys, "show", ids[0])
    assert (whole["content"], whole["created_at"]) == ("Run them twice.", 1000.0)
    assert shown(capsys, "export") == [whole, shown(capsys, "show", ids[1])]

    assert shown(capsys, "forget", ids[0]) == {"forgotten": ids[0]}

    assert [each["id"] for each in shown(capsys, "export")] == ids[1:]
    for command in ("show", "forget"):
        status, out, err = run(capsys, command, ids[0])
        assert (status, out) == (1, "")
        assert "has no memory" in err


def test_queued_branches_are_distilled(
    capsys: pytest.CaptureFixture[str], ids: list[str], tmp_path: Path
) -> None:
    lesson = {"title": "Lexer", "description": "When parsing fails", "content": "Look there first."}
    script = tmp_path / "replies.json"
    script.write_text(json.dumps([{"text": json.dumps([lesson])}]))

    done = shown(capsys, "distill", "--model", f"script:{script}")

    assert done == {"branches": 1, "waiting": 0}
    assert shown(capsys, "list", "--limit", "1")[0]["title"] == "Lexer"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["list", "--limit", "-1"], "Must be >= 0."),
        (["list", "--store", "mysql://x"], "There is no store"),
        (["distill"], "needs a model"),
    ],
    ids=["limit", "store", "model"],
)
def test_wrong_usage_is_reported(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.delenv("ANABRANCH_MODEL", raising=False)
    status, out, err = run(capsys, *arguments)

    assert (status, out) == (2, "")
    assert problem in err


def test_serve_needs_a_target_or_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == 2
    assert "or --memory" in capsys.readouterr().err


def lessons(tmp_path: Path) -> str:
    """The name of a model that learns one lesson from a branch that has failed."""
    lesson = {"title": "Lexer", "description": "When parsing fails", "content": "Look there first."}
    script = tmp_path / "replies.json"
    script.write_text(json.dumps([{"when": "Find it", "text": json.dumps([lesson])}]))
    return f"script:{script}"


@pytest.mark.parametrize(
    "command", [["serve", "--transport", "http"], ["web"]], ids=["serve", "web"]
)
def test_a_server_with_a_model_learns_from_queued_branches(
    capsys: pytest.CaptureFixture[str],
    ids: list[str],
    url: str,
    tmp_path: Path,
    command: list[str],
) -> None:
    line = [sys.executable, "-m", "anabranch", *command, "--memory", "--store", url]
    line += ["--port", "0", "--model", lessons(tmp_path)]
    environment = {**os.environ, "ANABRANCH_KEYS": "k" * 32}
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        assert " at http://" in server.stderr.readline()
        asyncio.run(until_learned(url))
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0

    assert shown(capsys, "list")[0]["title"] == "Lexer"


async def until_learned(url: str) -> None:
    store = open_memory_store(url)
    while await store.waiting():
        pass
    await store.close()


def test_a_chat_with_a_model_learns_from_queued_branches(
    capsys: pytest.CaptureFixture[str], ids: list[str], url: str, tmp_path: Path
) -> None:
    """And offers the tools of the memory. The tool of the target waits until the worker is done."""
    (tmp_path / "waits.py").write_text(WAITS)
    (tmp_path / "lines").write_text("/wait\n/memory_search query=parsing\n")
    line = ["chat", str(tmp_path / "waits.py"), "--memory", "--store", url]
    line += ["--script", str(tmp_path / "lines"), "--model", lessons(tmp_path)]

    assert main(line) == 0

    assert capsys.readouterr().out == "empty\n[]\n"  # the queued branch is another project's
    assert shown(capsys, "list")[0]["title"] == "Lexer"


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


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_the_memory_is_served_over_both_eras(
    capsys: pytest.CaptureFixture[str], url: str, era: str
) -> None:
    """Over HTTP, by a process that serves nothing else; what it records is in the store."""
    command = [sys.executable, "-m", "anabranch", "serve", "--memory", "--store", url]
    command += ["--transport", "http", "--port", "0"]
    environment = {**os.environ, "ANABRANCH_KEYS": "k" * 32}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert "memory_search, memory_record, memory_feedback" in line
        address = line.rpartition(" at ")[2].strip()

        def call(tool: str, **arguments: Any) -> Any:
            status = main(["call", address, tool, "--json", json.dumps(arguments), "--era", era])
            out, err = capsys.readouterr()
            assert (status, err) == (0, "")
            return json.loads(out)

        recorded = call(
            "memory_record", title="Builds", description="When one fails", content="Clean it."
        )
        rated = call("memory_feedback", memory_id=recorded["id"], helpful=True)
        found = call("memory_search", query="a build fails")
        server.send_signal(signal.SIGINT)
        assert server.wait() == 0

    assert found == [rated] == shown(capsys, "list")
