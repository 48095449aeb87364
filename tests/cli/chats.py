"""A folder in which ``anabranch chat`` runs: a store, a scripted model, a data directory."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main

TARGET = str(Path(__file__).with_name("chatted.py"))

REPLIES: list[dict[str, Any]] = [
    {"when": "book", "tool_calls": [{"name": "book", "arguments": {"place": "Ulm"}}]},
    {
        "when": "fork",
        "text": "I fork.",
        "tool_calls": [{"name": "branch_self", "arguments": {"prompts": ["east", "west"]}}],
    },
    {"when": "hang", "text": "I wait.", "tool_calls": [{"name": "hang"}]},
    {"when": "east", "text": "Sunrise."},
    {"when": "west", "text": "Sunset."},
    {"when": "Why", "text": "Because."},
    {"text": "All right.", "repeat": True},
]


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


class Desk:
    """A folder with a store, a model, and a data directory, in which chats run."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        (folder / "model.json").write_text(json.dumps(REPLIES))

    @property
    def model(self) -> list[str]:
        return ["--model", f"script:{self.folder / 'model.json'}"]

    def run(self, *arguments: str) -> Done:
        """Run the command in this process, which is faster."""
        self._capsys.readouterr()
        status = main(arguments)
        out, shown = self._capsys.readouterr()
        return Done(status, out, shown)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "anabranch", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def lead(self, *arguments: str, lines: str = "") -> Done:
        script = self.folder / "script.txt"
        script.write_text(lines)
        return self.run("chat", "--script", str(script), *arguments)

    def chat(self, *lines: str) -> Done:
        return self.lead(TARGET, "--thread", "t", *self.model, lines="\n".join(lines))

    def exported(self) -> dict[str, Any]:
        exported: dict[str, Any] = json.loads(self.run("tree", "export", "t").stdout)
        return exported

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that a provider would receive from the head of `t`."""
        shown = self.run("tree", "messages", self.exported()["refs"]["head"]).stdout
        messages: list[dict[str, Any]] = json.loads(shown)
        return messages
