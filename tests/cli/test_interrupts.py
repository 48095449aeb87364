"""Ctrl-C, at a pseudo-terminal: it leaves from anywhere, and the terminal is as it was."""

import asyncio
import signal
import threading
from pathlib import Path

import anyio
import pytest

from anabranch._terminal.interrupts import on_interrupt
from tests.cli.terminals import CTRL_C, ESCAPE, PROMPT, terminal
from tests.patience import PATIENCE

CHATTED = str(Path(__file__).with_name("chatted.py"))
FORM = ["choose"]


@pytest.mark.parametrize("era", ["modern", "handshake", "saga"])
def test_a_form_is_left_at_once(served: Path, era: str) -> None:
    with terminal("call", str(served), "confirm", "--era", era, status=130) as person:
        person.wait_for("(y/N)")
        person.type(CTRL_C)
        person.wait_for("anabranch: cancelled")
        assert person.process.communicate()[0] == b""


@pytest.mark.parametrize(
    ("tool", "sign"),
    [
        pytest.param(["think", "about=rivers"], "assistant:", id="sample"),
        pytest.param(["wait"], "waiting", id="running"),
    ],
)
def test_a_prompt_for_the_model_and_a_running_tool_are_left(
    served: Path, tmp_path: Path, tool: list[str], sign: str
) -> None:
    more = [f"notes={tmp_path / 'notes'}"] if tool == ["wait"] else []
    with terminal("call", str(served), *tool, *more, status=130) as person:
        person.wait_for(sign)
        person.type(CTRL_C)
        person.wait_for("anabranch: cancelled")
    assert person.shown.strip() == ""


async def test_a_signal_is_handled_though_it_does_not_end_the_waiting_itself() -> None:
    """Another thread receives it, as if it had come just before the loop began to wait."""
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


def test_a_form_that_is_cancelled_says_cancel_and_nothing_else(served: Path) -> None:
    with terminal("call", str(served), "confirm") as person:
        person.wait_for("(y/N)")
        person.type(ESCAPE)
        assert person.result() == ["cancel"]
        person.wait_for("> cancel")
    assert person.shown.strip() == ""


def test_in_a_chat_a_form_ends_the_turn_and_the_prompt_the_chat(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", CHATTED, whole=True, status=130, environment=environment) as person:
        person.wait_for(PROMPT)
        person.type("/book place=Ulm\r")
        person.wait_for("(y/N)")
        person.type(CTRL_C)
        person.wait_for("Interrupted. What was received is stored.")
        person.wait_for(PROMPT)
        person.type(CTRL_C)
        person.wait_for("anabranch: cancelled")


def test_a_second_press_kills_what_a_first_cannot_cut_short(tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", CHATTED, whole=True, status=130, environment=environment) as person:
        person.wait_for(PROMPT)
        person.type("/block\r")
        person.wait_for("[block] blocking")
        person.type(CTRL_C)
        person.wait_for("Ctrl-C again ends it at once.")
        person.type(CTRL_C)
