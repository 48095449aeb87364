"""A person at a pseudo-terminal, where the real command runs."""

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

PATIENCE = 120
"""Seconds for something to appear that would otherwise never come."""

AT_TERMINAL = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " os.open(os.ttyname(0), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
)
"""The first of a session to open a terminal gets it: Ctrl-C is then a signal there, and heeded.

A shell starts what runs in its background deaf to Ctrl-C, and the tests may be run there.
"""


PROMPT = ">"
"""A chat's prompt; the space after it is drawn by moving the cursor."""


class Terminal:
    """A person at a terminal: they wait for words, and type."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self._master, self.process = master, process
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
        out, _ = self.process.communicate(timeout=PATIENCE)
        return json.loads(out)

    def status(self) -> int:
        """Wait for the end, and return the exit status."""
        try:
            while select.select([self._master], [], [], PATIENCE)[0]:
                self.shown += os.read(self._master, 4096).decode()
        except OSError:  # the other side is closed
            pass
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(
    *arguments: str,
    status: int = 0,
    whole: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Generator[Terminal]:
    """Run the command at a terminal; with `whole`, its stdout is the terminal, too."""
    master, slave = pty.openpty()
    merged = {**os.environ, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", **(environment or {})}
    merged.pop("ANABRANCH_MODEL", None)
    with subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, sys.executable, "-m", "anabranch", *arguments],
        stdin=slave,
        stdout=slave if whole else subprocess.PIPE,
        stderr=slave,
        env=merged,
        start_new_session=True,
    ) as process:
        os.close(slave)
        person = Terminal(master, process)
        try:
            yield person
            ended = person.status() if whole else process.wait(PATIENCE)
        except BaseException:  # else the failure would wait for a command that waits for a key
            process.kill()
            raise
    os.close(master)
    assert ended == status
