"""Our own clients repeat a request whose connection was lost, and nothing happens twice."""

import io
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from anabranch._terminal.answer_file import Answers as AnswerFile
from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError
from anabranch._terminal.respondent import Respondent
from anabranch.cli import _call_command
from anabranch.cli._call_command import CallOptions, call
from anabranch.mcp import SagaClient, _saga_client
from tests.mcp.harness import MODERN, asgi, text_of
from tests.mcp.lossy import KINDS, Lossy, booking
from tests.sagas.harness import Person

NO_PAUSES = (0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (_saga_client, _call_command):
        monkeypatch.setattr(module, "PAUSES", NO_PAUSES)


def person() -> Person:
    return Person(lambda _step, _message: {"n": 2})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1, 2)])
async def test_a_saga_client_repeats_its_requests(kind: str, lost: tuple[int, ...]) -> None:
    effects: list[str] = []
    app, asked = Lossy(booking(effects, "memory:"), kind, *lost), person()
    async with asgi(app) as url:
        saga = SagaClient(lambda: Client(url, mode=MODERN), asked)
        result = await saga.call_tool("book")
    assert text_of(result) == "2 more"
    assert effects == ["one", "more"]
    assert asked.asked == ["book/elicit.1"]
    assert app.called == 2 + len(lost)


async def test_a_connected_client_repeats_where_its_connection_outlives_the_reply() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, "memory:"), "text/event-stream", 0)
    async with asgi(app) as url, Client(url, mode=MODERN) as client:
        assert text_of(await SagaClient(client, person()).call_tool("book")) == "2 more"
    assert effects == ["one", "more"]


async def test_it_gives_up_when_every_reply_is_lost() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, "memory:"), "text/event-stream", *range(9))
    async with asgi(app) as url:
        with pytest.raises(MCPError, match="ended without a response"):
            await SagaClient(lambda: Client(url, mode=MODERN), person()).call_tool("book")
    assert app.called == 1 + len(NO_PAUSES)
    assert effects == ["one"]


async def test_nothing_is_repeated_where_no_store_would_recognise_it() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, None), "text/event-stream", 0)
    async with asgi(app) as url:
        with pytest.raises(MCPError, match="ended without a response"):
            await SagaClient(lambda: Client(url, mode=MODERN), person()).call_tool("book")
    assert effects == ["one"]


async def test_an_answerer_that_fails_is_no_lost_connection() -> None:
    effects: list[str] = []

    def fails(*_: str) -> Any:
        raise ConnectionError("no model")

    app = Lossy(booking(effects, "memory:"), KINDS[0])
    async with asgi(app) as url:
        with pytest.raises(ExceptionGroup):
            await SagaClient(lambda: Client(url, mode=MODERN), Person(fails)).call_tool("book")
    assert app.called == 1


class Once:
    """A person at a terminal, who answers from a file; a question that is asked again fails."""

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
    """The person is not asked again."""
    effects: list[str] = []
    at_terminal = Once()
    if era == "saga":  # the first request asks whether there are sagas
        lost = tuple(number + 1 for number in lost)
    async with asgi(Lossy(booking(effects, "memory:"), kind, *lost)) as url:
        options = CallOptions(url, "book", era=era)
        assert await call(options, at_terminal.respondent) == "2 more"
    assert effects == ["one", "more"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_command_repeats_them_in_the_handshake_era(kind: str) -> None:
    effects: list[str] = []
    at_terminal = Once()
    async with asgi(Lossy(booking(effects, "memory:"), kind, 0)) as url:
        options = CallOptions(url, "plain", era="handshake")
        assert await call(options, at_terminal.respondent) == "booked"
    assert effects == ["one"]
    assert "The connection was lost; the request is repeated." in at_terminal.shown.getvalue()


async def test_the_command_repeats_nothing_without_a_store() -> None:
    effects: list[str] = []
    async with asgi(Lossy(booking(effects, None), KINDS[1], 0)) as url:
        with pytest.raises(FailedError, match="ended the connection"):
            await call(CallOptions(url, "book"), Once().respondent)
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
    key = await call(CallOptions(str(target), "dies"), Once().respondent)
    assert (tmp_path / "effects").read_text().splitlines() == [key]
