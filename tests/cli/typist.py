"""A user who types each answer only after its prompt is shown."""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from anabranch._terminal import ask_form
from anabranch.messages import ElicitReply, ElicitRequest


class _Reading(DummyOutput):
    """An output that the user reads."""

    def __init__(self, pipe: PipeInput, answers: tuple[tuple[str, str], ...]) -> None:
        self._pipe, self._answers, self._shown = pipe, list(answers), ""

    def write(self, data: str) -> None:
        self._shown += data

    def flush(self) -> None:
        if self._answers and self._answers[0][0] in self._shown:
            self._shown = ""
            self._pipe.send_text(self._answers.pop(0)[1])


@contextmanager
def answering(*answers: tuple[str, str]) -> Generator[None]:
    """Type each of `answers` when its prompt is shown: a part of the prompt, and the keys."""
    with (
        create_pipe_input() as pipe,
        create_app_session(input=pipe, output=_Reading(pipe, answers)),
    ):
        yield


T = TypeVar("T")

ENTER, UP, DOWN, SPACE, ESCAPE, CTRL_C, CTRL_D = (
    "\r",
    "\x1b[A",
    "\x1b[B",
    " ",
    "\x1b",
    "\x03",
    "\x04",
)


async def typing(keys: str, ask: Callable[[], Awaitable[T]]) -> T:
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        return await ask()


async def fill(schema: dict[str, Any], keys: str) -> ElicitReply:
    request = ElicitRequest(message="?", requested_schema=schema)
    return await typing(keys, lambda: ask_form(request))
