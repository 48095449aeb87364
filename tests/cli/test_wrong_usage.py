"""Wrong usage ends a command with status 2 and one line on stderr, before the command does anything."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.running import Run

SERVED = Path(__file__).with_name("served.py")
USAGES = {
    "dance": "dance",
    "serve": "serve needs a TARGET",
    "serve missing.py": "There is no file missing.py",
    "serve missing.py --transport pigeon": "pigeon",
    "serve missing.py --port many": "many",
    "serve missing.py --port 70000": "There is no port 70000. Choose one",
    "serve missing.py --max-tokens=-1": '"-1" for --max-tokens. Give a number from 0 up.',
    "serve missing.py --model gpt": "Unknown model 'gpt'",
    "serve missing.py --heartbeat=-1": '"-1.0" for --heartbeat. Give a number from 0 up.',
    "serve missing.py --workers 2": "Over stdio there is one process.",
    "serve missing.py --workers 0": '"0" for --workers. Give a number from 1 up.',
    "serve missing.py --workers=2 --transport=http --store=memory:": "Several workers cannot share a store in memory.",
    "serve missing.py --transport http --limit-concurrency 0": "cannot serve 0 requests",
    "serve missing.py --transport http --limit-concurrency 1000000000": "raise that limit",
    "serve missing.py --transport http --session-ttl 0": "A session cannot end after 0 s",
    "serve missing.py --ttl 0": "No user can answer in 0 s.",
    f"serve missing.py --token {'a' * 32}": "Give --token with --transport http.",
    f"serve {SERVED} --store paper:///x": "There is no store for 'paper' URLs",
    f"serve {SERVED} --ask-url https://x.example --ask-fallback": "--transport http, --ask-fallback",
    f"serve {SERVED} --transport http --ask-fallback --store memory: --ask-url x.example": (
        "ask_url must be like https://tools.example.org, got 'x.example'"
    ),
    "serve --folding --transport http --workers 2": "Give --store URL",
    "serve --folding --shared-memory web": "Give both options.",
    "serve --memory --shared-memory 'web '": "'web ' is no name",
    "serve --folding --code-version ~": "A version of the code is 1 to 100",
    "call missing.py tool": "There is no file missing.py",
    "call tools.py x --header 'X: y'": "for a server at a URL",
    "call tools.py x --max-samples-per-minute 0": "max_samples_per_minute must be a positive number, got 0.",
    "call tools.py x --bogus": "Unknown option: --bogus",
    "call tools.py x --era bronze": "Invalid value",
    "chat missing.py --prompt Hi": "There is no file missing.py.",
    "chat --model nonsense --prompt Hi": "Unknown model 'nonsense'.",
    "chat --store ftp://x --prompt Hi": "ftp",
    "chat --store memory: --thread last --prompt Hi": "There is no conversation yet.",
    "chat --store memory: --at b1 --prompt Hi": "This conversation has no messages yet.",
    "chat --script missing.txt": "Cannot read the script missing.txt: No such",
    "chat --prompt Hi --script missing.txt": "Leave one of them out.",
    "chat --timeout nan": '"nan" for --timeout. Give a number from 0 up.',
    "check": "TARGET",
    "check missing.py": "There is no file missing.py",
    "check http://x/mcp": "is a running server",
    "check missing.py tool --answers missing.json": "Cannot read the answer file",
    "demo --answers missing.json": "Cannot read the answer file",
    "dev": "dev needs a TARGET",
    "dev http://127.0.0.1:1/mcp": "Use anabranch web to call its tools",
    "dev command:some-server": "Use anabranch web to call its tools",
    "dev missing.py": "There is no file missing.py",
    f"dev {SERVED} --port 70000": "There is no port 70000",
    "memory list --limit=-1": '"-1" for --limit. Give a number from 0 up.',
    "memory list --store mysql://x": "There is no store",
    "memory distill": "needs a model",
    "web --engine sqlite:///x.db": "needs a Postgres that its workers share",
    "web --code-version a/b": "A version of the code is 1 to 100",
    "web --max-tokens 0": '"0" for --max-tokens. Give a number from 1 up.',
    "web --max-backlog 0": '"0" for --max-backlog. Give a number from 1 up.',
    "serve missing.py --max-running 0": '"0" for --max-running. Give a number from 1 up.',
    "web --max-depth=-1": '"-1" for --max-depth. Give a number from 0 up.',
    "worker --store memory: --timeout inf": '"inf" for --timeout. Give a number from 0 up.',
    "worker --store memory:": "give --engine dbos",
    "worker --store memory: --engine in-process": "give --engine dbos",
    "worker --store memory: --engine dbos": "needs a Postgres that its workers share",
    "worker --store memory: --engine dboss": "There is no engine 'dboss'",
    "worker --store memory: --engine dbos?schema=My-app": "not 'My-app'",
    "worker --store memory: --engine dbos?prefix=x": "has the option schema; not 'prefix=x'",
    "worker --store memory: --concurrency 0": '"0" for --concurrency. Give a number from 1 up.',
    "worker --store memory: --per-user 0": '"0" for --per-user. Give a number from 1 up.',
    "worker --store memory: --grace inf": '"inf" for --grace. Give a number from 0 up.',
    "worker --store memory: --code-version 'a b'": "A version of the code is 1 to 100",
}


@pytest.mark.parametrize("usage", USAGES)
def test_wrong_usage_is_refused_in_one_line(
    usage: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ENGINE", "MODEL", "STORE", "TOKEN"):
        monkeypatch.delenv(f"ANABRANCH_{name}", raising=False)
    monkeypatch.setenv("ANABRANCH_KEYS", "k" * 32)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert USAGES[usage] in run.refusal(*shlex.split(usage))


STORED = [
    "browse",
    "calls list",
    "calls show last",
    f"calls replay --all {SERVED}",
    f"calls undo last {SERVED}",
    "memory list",
    "memory search word",
    "memory show mem_1",
    "memory forget mem_1",
    "memory export",
    "tree list",
    "tree show last",
    "tree export last",
    "tree messages last",
    "tree label last b1 draft",
    "tree unlabel last draft",
    "tree prune last",
    "work list",
    "work show last",
    "work retry last",
    "work cancel last",
]
"""The commands on stored data."""


@pytest.mark.parametrize("command", STORED)
def test_a_command_on_stored_data_refuses_a_missing_file_and_creates_nothing(
    run: Run, command: str, tmp_path: Path
) -> None:
    missing = tmp_path / "folder" / "typo.db"
    err = run.refusal(*shlex.split(command), "--store", f"sqlite:///{missing}")
    assert f"There is no file {missing}, which the store sqlite:///{missing} names." in err
    assert not missing.parent.exists()


@pytest.mark.parametrize("command", ["calls list", "memory list", "tree list", "work list"])
def test_the_default_store_of_a_new_user_is_empty_and_needs_no_file(
    run: Run, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_STORE", raising=False)
    assert run.value(*command.split()) == []
    assert not (tmp_path / "data").exists()
