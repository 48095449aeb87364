"""``anabranch call`` repeats a request whose connection was lost, and every effect happens once."""

import io
from pathlib import Path
from typing import Any

import pytest

from anabranch._terminal import Answers as AnswerFile
from anabranch._terminal import Console, FailedError, Respondent
from anabranch.cli import _calling
from anabranch.cli._calling import call
from tests.mcp.harness import asgi
from tests.mcp.lossy import KINDS, Lossy, booking
from tests.mcp.waits import NO_PAUSES, repeat_at_once


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    repeat_at_once(monkeypatch)
    monkeypatch.setattr(_calling, "PAUSES", NO_PAUSES)


class Once:
    """A user at a terminal, who answers from a file; a repeated question fails."""

    def __init__(self) -> None:
        self.shown = io.StringIO()
        answers = AnswerFile([{"accept": {"n": 2}}])
        self.respondent = Respondent(Console(self.shown, interactive=False), answers=answers)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("era", ["auto", "modern", "saga"])
@pytest.mark.parametrize(
    "lost",
    [
        pytest.param((0,), marks=pytest.mark.long),
        pytest.param((1,), marks=pytest.mark.long),
        (0, 1),
    ],
)
async def test_the_command_repeats_its_requests(era: Any, kind: str, lost: tuple[int, ...]) -> None:
    """The user is not asked again."""
    effects: list[str] = []
    at_terminal = Once()
    if era == "saga":  # the first request asks whether the server has saga methods
        lost = tuple(number + 1 for number in lost)
    async with asgi(Lossy(booking(effects, "memory:"), kind, *lost)) as url:
        assert await call(url, "book", at_terminal.respondent, era=era) == "2 more"
    assert effects == ["one", "more"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_command_repeats_them_in_the_handshake_era(kind: str) -> None:
    effects: list[str] = []
    at_terminal = Once()
    async with asgi(Lossy(booking(effects, "memory:"), kind, 0)) as url:
        assert await call(url, "plain", at_terminal.respondent, era="handshake") == "booked"
    assert effects == ["one"]
    assert "The connection was lost; the request is repeated." in at_terminal.shown.getvalue()


async def test_the_command_repeats_nothing_without_a_store() -> None:
    effects: list[str] = []
    async with asgi(Lossy(booking(effects, None), KINDS[1], 0)) as url:
        with pytest.raises(FailedError, match="ended the connection"):
            await call(url, "book", Once().respondent)
    assert effects == ["one"]


DIES = '''
import os, pathlib, signal
from anabranch import BranchContext, tool
from anabranch.mcp import Durability, create_server
from anabranch.stores import open_store

HERE = pathlib.Path(__file__).parent


def book(key: str) -> str:
    with (HERE / "effects").open("a") as effects:
        effects.write(key + "\\n")
    return key


@tool
async def dies(ctx: BranchContext) -> str:
    """Book, and be killed the first time."""
    key = await ctx.step(book, ctx.idempotency_key)
    if not (HERE / "died").exists():
        (HERE / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return key


store = Durability(open_store(f"sqlite:///{HERE}/calls.db"), lease=5.0)
server = create_server("mortal", [dies], keys=["k" * 32], store=store)
'''


async def test_a_server_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    target = tmp_path / "mortal.py"
    target.write_text(DIES)
    key = await call(str(target), "dies", Once().respondent)
    assert (tmp_path / "effects").read_text().splitlines() == [key]
