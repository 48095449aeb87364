"""The user in a chat, when branches ask at the same time."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from anabranch._terminal import Console, Respondent
from anabranch.agents import Question
from anabranch.chat._terminal.input_lines import ChatAnswerer, ScriptedLines, TypedLines
from anabranch.messages import ElicitReply, ElicitRequest, SampleRequest, user
from tests.cli.typist import UP
from tests.patience import PATIENCE


def question(place: str) -> Question:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    return ElicitRequest.model_validate({"message": f"Book {place}?", "requested_schema": schema})


async def all_answers(lines: ScriptedLines, shown: io.StringIO) -> list[ElicitReply]:
    """Return the answers to three branches that ask at the same time."""
    console = Console(shown, interactive=False)
    user = ChatAnswerer(console, Respondent(console), lines)
    with anyio.fail_after(PATIENCE):
        return await asyncio.gather(
            *(user.elicit(question(place), step_id="q") for place in ("Ulm", "Linz", "Graz"))
        )


class Pipe(asyncio.Queue[str | None]):
    """A pipe that delivers each line late, so that a reader has to wait."""

    async def get(self) -> str | None:
        await asyncio.sleep(0)
        return await super().get()


def piped(*lines: str) -> ScriptedLines:
    """Return lines that arrive one by one, and then end."""
    more = Pipe()
    for line in (*lines, None):
        more.put_nowait(line)
    return ScriptedLines(more=more)


def scripted(*lines: str) -> ScriptedLines:
    return ScriptedLines(lines)


@pytest.mark.parametrize("given", [piped, scripted])
async def test_each_line_answers_the_question_that_is_shown_before_it(
    given: Callable[..., ScriptedLines],
) -> None:
    shown = io.StringIO()
    lines = given("/answer ok=true", "/answer decline", "/answer cancel")
    answers = await all_answers(lines, shown)
    assert [answer.action for answer in answers] == ["accept", "decline", "cancel"]
    assert shown.getvalue().splitlines() == [
        *["? Book Ulm?", '> accept {"ok": true}'],
        *["? Book Linz?", "> decline"],
        *["? Book Graz?", "> cancel"],
    ]


async def test_a_line_that_is_no_answer_declines_all_questions_and_stays() -> None:
    lines = piped("go on")
    answers = await all_answers(lines, io.StringIO())
    assert [answer.action for answer in answers] == ["decline"] * 3
    assert await lines.next("> ") == "go on"


async def test_questions_are_declined_when_the_pipe_has_ended() -> None:
    answers = await all_answers(piped(), io.StringIO())
    assert [answer.action for answer in answers] == ["decline"] * 3


async def test_a_sample_goes_to_a_present_user_and_fails_in_a_script() -> None:
    console = Console(io.StringIO(), interactive=True)
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        answerer = ChatAnswerer(
            console, Respondent(console), TypedLines(console.stream, history=None)
        )
        pipe.send_text("Because.\r")
        asked = SampleRequest(messages=(user("Why?"),), max_tokens=10)
        assert (await answerer.sample(asked, step_id="s")).text == "Because."
    assert answerer.capabilities.sampling
    script = ChatAnswerer(console, Respondent(console), scripted("hello"))
    assert not script.capabilities.sampling


@pytest.mark.parametrize("place", ["file/history", "folder"])
async def test_lines_are_typed_although_their_history_cannot_be_stored(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        lines = TypedLines(io.StringIO(), tmp_path / place)
        with anyio.fail_after(PATIENCE):
            keys.send_text("hello\r")
            assert await lines.next("> ") == "hello"
            keys.send_text(f"{UP}\r")
            assert await lines.next("> ") == "hello", "the chat remembers the line"


async def test_the_history_of_typed_lines_is_stored_for_their_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "new" / "history"
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        lines = TypedLines(io.StringIO(), file)
        keys.send_text("hello\r")
        with anyio.fail_after(PATIENCE):
            assert await lines.next("> ") == "hello"
    assert "+hello" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
