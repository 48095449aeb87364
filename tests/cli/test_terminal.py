"""The real command at a pseudo-terminal, played by keyboard."""

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60
"""Seconds for something to appear that would otherwise never come."""


class Terminal:
    """A person at a terminal: they wait for words, and type."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master, self._process = master, process
        self.shown = ""

    def wait_for(self, words: str) -> None:
        """Read until `words` have been shown, and forget what came before them."""
        while words not in self.shown:
            ready, _, _ = select.select([self._master], [], [], PATIENCE)
            assert ready, f"{words!r} never came; the terminal shows {self.shown!r}"
            self.shown += re.sub(
                r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._master, 4096).decode()
            )
        self.shown = self.shown.partition(words)[2]

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def result(self) -> object:
        """Wait for the end and return what stdout, which is no terminal, has carried."""
        out, _ = self._process.communicate(timeout=PATIENCE)
        return json.loads(out)


@contextmanager
def terminal(*arguments: str) -> Generator[Terminal]:
    master, slave = pty.openpty()
    environment = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
    environment.pop("ANABRANCH_MODEL", None)
    with subprocess.Popen(
        [sys.executable, "-m", "anabranch", *arguments],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=environment,
        start_new_session=True,
    ) as process:
        os.close(slave)
        yield Terminal(master, process)
    os.close(master)
    assert process.returncode == 0


def test_the_demo_is_played_by_keyboard() -> None:
    with terminal("demo") as person:
        person.wait_for("round 1 ends with 1 question: pick_card/analyze#1/sample.1 (the model)")
        person.wait_for("Pick a card!")
        person.wait_for("Card number (1 to 10):")
        person.type("9\r")
        person.wait_for("There are only 5 cards.")
        person.wait_for("Card number (1 to 10):")
        person.type("0\r")
        person.wait_for("must be 1 to 10")
        person.type("\x7f2\r")
        outcome = person.result()
    assert isinstance(outcome, dict)
    assert outcome["picked"] in outcome["message"]


def test_questions_at_once_and_a_sample_are_answered_by_keyboard(served: Path) -> None:
    """In the handshake era, where the questions are two requests at the same time."""
    with terminal("call", str(served), "confirm_and_think", "--era", "handshake") as person:
        person.wait_for("Left?")
        person.wait_for("(y/N)")
        assert "Right?" not in person.shown
        person.type("y")
        person.wait_for("Right?")
        person.wait_for("(y/N)")
        person.type("\x1b")
        person.wait_for("user: Why?")
        person.wait_for("assistant:")
        person.type("Because.\r")
        assert person.result() == ["accept", "cancel", "Because."]
