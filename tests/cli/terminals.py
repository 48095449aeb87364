"""A user at a pseudo-terminal, in which the real command runs, and the screen that the user sees."""

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.docs.pages import environment as of_reader
from tests.patience import PATIENCE

SIZE = (80, 24)
"""Columns and lines."""
SCREENS = Path(__file__).parents[2] / "build" / "screens"
"""Where the screens are stored that tests have seen, for people to look at."""

AT_TERMINAL = (
    "import os, runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " os.close(os.open(os.ttyname(0), os.O_RDWR)); del sys.argv[0];"
    " runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""Runs the module that is named at the terminal that is its stdin.

The first of a session to open a terminal gets it: Ctrl-C is then a signal there, and heeded.
"""


PROMPT = ">"
"""A chat's prompt; the space after it is drawn by moving the cursor."""
CTRL_C, CTRL_D, ESCAPE, ENTER, UP, DOWN = "\x03", "\x04", "\x1b", "\r", "\x1b[A", "\x1b[B"


class _Screen(pyte.Screen):
    """A screen that reports its cursor position, as terminals do."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, lines)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """A user at a terminal, who waits for words and types.

    `shown` is the output since the last expected words, without cursor movements. `screen` is a terminal's
    rendering of all output, by default with 80 columns and 24 lines.
    """

    def __init__(
        self, master: int, process: "subprocess.Popen[bytes]", size: tuple[int, int] = SIZE
    ) -> None:
        self._master, self.process = master, process
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self.drawn = _Screen(*size, self.type)
        self._stream = pyte.ByteStream(self.drawn)
        self.shown = ""
        self.raw = b""

    @property
    def screen(self) -> str:
        """Return the lines on the screen, without the empty ones at its end."""
        return "\n".join(line.rstrip() for line in self.drawn.display).rstrip()

    def wait_for(self, words: str) -> None:
        """Read until `words` have been shown, and forget the output before them."""
        while words not in self.shown:
            self._read(words)
        self.shown = self.shown.partition(words)[2]

    def wait_until(self, seen: Callable[[str], object]) -> None:
        while not seen(self.screen):
            self._read("the screen")

    def _read(self, awaited: str) -> None:
        ready, _, _ = select.select([self._master], [], [], PATIENCE)
        assert ready, f"{awaited!r} never came; the terminal shows\n{self.screen}\n{self.shown!r}"
        self._take(os.read(self._master, 4096))

    def begin(self, line: str) -> None:
        """Begin the screen with a line that no program writes."""
        self._stream.feed(f"{line}\r\n".encode())

    def _take(self, written: bytes) -> None:
        self._stream.feed(written)
        self.raw += written
        self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._decode(written))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Resize the window; a signal informs the program, which draws the screen again.

        The modes stay as the program has set them. Output for the old size may still arrive, and must not be
        wrapped if the program has turned wrapping off.
        """
        self.drawn.resize(lines, columns)
        self.drawn.erase_in_display(2)
        self.drawn.cursor_position()
        termios.tcsetwinsize(self._master, (lines, columns))

    def store(self, name: str) -> None:
        SCREENS.mkdir(parents=True, exist_ok=True)
        (SCREENS / f"{name}.txt").write_text(f"{self.screen}\n", "utf-8")

    def modes(self) -> object:
        """Return the terminal's treatment of typed keys: echo, lines, signals."""
        return termios.tcgetattr(self._master)

    def result(self) -> object:
        """Wait for the end and return the text of stdout, which is no terminal."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        return json.loads(out)

    def status(self) -> int:
        try:
            while select.select([self._master], [], [], PATIENCE)[0]:
                self._take(os.read(self._master, 4096))
        except OSError:  # the other side is closed
            pass
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(
    *arguments: str,
    status: int = 0,
    whole: bool = False,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    size: tuple[int, int] = SIZE,
) -> Generator[Terminal]:
    """Run the command at a terminal; with `whole`, its stdout is the terminal as well.

    With a `folder`, the command runs there, with the variables of a reader of the documentation.

    At its end the terminal must have its original modes: a prompt must not leave it without echo.
    """
    master, slave = pty.openpty()
    termios.tcsetwinsize(master, size[::-1])
    variables = os.environ if folder is None else of_reader(folder)
    merged = {**variables, "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", **(environment or {})}
    merged.pop("ANABRANCH_MODEL", None)
    before = termios.tcgetattr(master)  # the command may change the modes as soon as it starts
    with subprocess.Popen(
        [sys.executable, "-c", AT_TERMINAL, "anabranch", *arguments],
        cwd=folder,
        stdin=slave,
        stdout=slave if whole else subprocess.PIPE,
        stderr=slave,
        env=merged,
        start_new_session=True,
    ) as process:
        user = Terminal(master, process, size)
        try:
            yield user
            os.close(slave)
            ended = user.status() if whole else process.wait(PATIENCE)
        except BaseException:  # otherwise a failure would wait for a command that waits for a key
            process.kill()
            raise
    after = user.modes()
    os.close(master)
    assert ended == status
    assert (
        after == before or status == -signal.SIGKILL
    )  # a killed command has no time to restore them
