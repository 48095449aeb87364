"""Ctrl-C and SIGTERM at a pseudo-terminal end every prompt and restore the terminal."""

import asyncio
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest

from anabranch.__main__ import main
from anabranch._terminal import ask_text, handled_by, on_interrupt
from anabranch.chat import TypedLines
from tests.cli.stopping import SERVE, started, url_of
from tests.cli.stopping import TARGET as STOPPED
from tests.cli.terminals import CTRL_C, PROMPT, Terminal, terminal
from tests.cli.typist import typing
from tests.patience import PATIENCE

CHATTED = str(Path(__file__).with_name("chatted.py"))


def ctrl_c(user: Terminal) -> None:
    user.type(CTRL_C)


def sigterm(user: Terminal) -> None:
    user.process.send_signal(signal.SIGTERM)


def hang_up(user: Terminal) -> None:
    user.process.send_signal(signal.SIGHUP)


@pytest.fixture(scope="module")
def stopped_url() -> Iterator[str]:
    """Return the URL of a server whose tools undo their effects when their call is cancelled."""
    with started(*SERVE, STOPPED) as server:
        yield url_of(server)


class Notes:
    """The notes of a tool, which another process writes; a test waits for each."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "notes"
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDWR)

    def wait_for(self, words: str) -> None:
        read = ""
        while read != words:
            assert select.select([self._reader], [], [], PATIENCE)[0], f"only {read!r} was noted"
            read += os.read(self._reader, 1024).decode()


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


@pytest.mark.parametrize(
    ("tool", "sign", "leave", "status"),
    [("ask", "(y/N)", ctrl_c, 130), ("wait", "waiting", sigterm, 143)],
)
def test_a_running_server_undoes_an_interrupted_call_of_the_handshake_era(
    stopped_url: str,
    notes: Notes,
    tool: str,
    sign: str,
    leave: Callable[[Terminal], None],
    status: int,
) -> None:
    command = ["call", stopped_url, tool, f"notes={notes.path}", "--era", "handshake"]
    with terminal(*command, whole=True, status=status) as user:
        user.wait_for(sign)
        leave(user)
        user.wait_for("anabranch: ")
    assert "Traceback" not in user.screen
    notes.wait_for("done\nundone\n")


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_server_started_for_a_call_undoes_it_and_says_nothing(notes: Notes, era: str) -> None:
    command = ["call", STOPPED, "wait", f"notes={notes.path}", "--era", era]
    with terminal(*command, whole=True, status=143) as user:
        user.wait_for("waiting")
        sigterm(user)
        user.wait_for("anabranch: terminated")
    assert user.shown.strip() == ""
    notes.wait_for("done\nundone\n")


def test_nor_does_it_say_anything_when_its_client_is_killed(notes: Notes) -> None:
    command = ["call", STOPPED, "wait", f"notes={notes.path}", "--era", "handshake"]
    with terminal(*command, whole=True, status=-signal.SIGKILL) as user:
        user.wait_for("waiting")
        user.process.kill()
    assert user.shown.strip() == ""
    notes.wait_for("done\nundone\n")


@pytest.mark.parametrize(("leave", "status"), [(sigterm, 143), (hang_up, 129)])
def test_a_terminated_chat_undoes_the_effects_of_its_tool(
    tmp_path: Path, leave: Callable[[Terminal], None], status: int
) -> None:
    notes, environment = tmp_path / "notes", {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", STOPPED, whole=True, status=status, environment=environment) as user:
        user.wait_for(PROMPT)
        user.type(f"/wait notes={notes}\r")
        user.wait_for("[wait] waiting")
        leave(user)
        user.wait_for("anabranch: terminated")
    assert notes.read_text() == "done\nundone\n"


def test_a_chat_is_terminated_at_its_prompt(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", CHATTED, whole=True, status=143, environment=environment) as user:
        user.wait_for(PROMPT)
        sigterm(user)
        user.wait_for("anabranch: terminated")


@pytest.mark.parametrize("era", ["modern", "handshake", "saga"])
def test_a_form_is_left_at_once(served: Path, era: str) -> None:
    with terminal("call", str(served), "confirm", "--era", era, status=130) as user:
        user.wait_for("(y/N)")
        user.type(CTRL_C)
        user.wait_for("anabranch: cancelled")
        assert user.process.communicate()[0] == b""


def test_a_prompt_for_the_model_is_left(served: Path) -> None:
    with terminal("call", str(served), "think", "about=rivers", status=130) as user:
        user.wait_for("assistant:")
        user.type(CTRL_C)
        user.wait_for("anabranch: cancelled")
    assert user.shown.strip() == ""


async def test_a_signal_is_handled_though_it_does_not_end_the_waiting_itself() -> None:
    """Another thread receives the signal, as if it had come just before the loop started to wait."""
    waiting = threading.Event()

    def press() -> None:
        waiting.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with anyio.fail_after(PATIENCE), anyio.CancelScope() as scope, on_interrupt(scope.cancel):
        asyncio.get_running_loop().call_soon(waiting.set)
        await anyio.sleep_forever()
    pressing.join()
    assert scope.cancelled_caught


async def chat_line() -> str | None:
    return await TypedLines(io.StringIO(), history=None).next("> ")


def on_resize(_number: int, _frame: object) -> None:
    """Handle the signal of a resized terminal."""


def handling() -> tuple[object, ...]:
    """Return the handler of each signal, and the descriptor by which signals wake the loop."""
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return wakeup, [signal.getsignal(number) for number in signal.valid_signals()]


@pytest.mark.parametrize("prompt", [partial(ask_text, "Name?"), chat_line])
async def test_a_prompt_restores_signal_handlers(prompt: Callable[[], Awaitable[object]]) -> None:
    with on_interrupt(lambda: None), handled_by(on_resize, [signal.SIGWINCH]):
        before = handling()
        assert await typing("Ada\r", prompt) == "Ada"
        assert handling() == before


def test_a_second_press_kills_work_that_the_first_cannot_cut_short(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", CHATTED, whole=True, status=130, environment=environment) as user:
        user.wait_for(PROMPT)
        user.type("/block\r")
        user.wait_for("[block] blocking")
        user.type(CTRL_C)
        user.wait_for("Ctrl-C again kills the process.")
        user.type(CTRL_C)


def test_ctrl_c_during_the_imports_of_a_command_ends_it_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupting:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "anabranch.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "anabranch.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert main() == 130
    assert capsys.readouterr().err == "anabranch: cancelled\n"
