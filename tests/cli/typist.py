"""A person who types each answer when its prompt is there, and not before."""

from collections.abc import Generator
from contextlib import contextmanager

from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput


class _Reading(DummyOutput):
    """An output that is read by the person."""

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
    """Within the block, each of `answers` is typed when its prompt is shown: words of it, and keys."""
    with (
        create_pipe_input() as pipe,
        create_app_session(input=pipe, output=_Reading(pipe, answers)),
    ):
        yield
