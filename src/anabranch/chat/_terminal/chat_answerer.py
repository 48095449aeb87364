"""Answers a chat's questions at the terminal or from a script, and opens the chat's models."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import anyio

from anabranch._asking import Absent, AnswerError, Capabilities
from anabranch._terminal import NO_MODEL, Console, Respondent
from anabranch.agents import Model, Question
from anabranch.chat._terminal.input_lines import InputLines, ScriptedLines
from anabranch.chat._terminal.session_output import SessionError
from anabranch.chat._terminal.typed_input import read_answer
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, known_models, open_model


class ChatModels:
    """The catalogue of all models for the option ``--model``."""

    def open(self, name: str) -> Model:
        """Return the model with that name, with its provider's prompt cache enabled.

        Raises:
            ModelError: if the model cannot be opened.
        """
        return open_model(name, cache=True)

    def names(self) -> Sequence[str]:
        """Return the names known to the adapter; none without the extra ``models``."""
        return known_models()


class NoModel:
    """The model of a chat for which no model is configured.

    This model refuses turns. The user at the terminal answers the samples of tools.
    """

    def __init__(self, respondent: Respondent) -> None:
        self._respondent = respondent

    @property
    def capabilities(self) -> Capabilities:
        """The user at the terminal, if there is one, can answer samples."""
        return self._respondent.capabilities

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Ask the user at the terminal to reply in the model's place."""
        return await self._respondent.sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        """Refuse.

        Raises:
            ModelError: always.
        """
        del request
        raise ModelError(
            f"No model is configured: {NO_MODEL}, or /switch to one; /auto then answers your"
            " message. Tools run without a model: /TOOL name=value."
        )


class ChatAnswerer(Absent):
    """Answers the questions of tools.

    Args:
        console: shows the questions.
        respondent: shows the forms.
        lines: the source of the chat's lines; the next line of a script may be the answer.
        place_of: returns the name of a question's branch by the question's id, if it has one.
    """

    def __init__(
        self,
        console: Console,
        respondent: Respondent,
        lines: InputLines,
        place_of: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        self._console = console
        self._place_of = place_of
        self._respondent = respondent
        self._lines = lines
        self._lock = anyio.Lock()
        able = respondent.capabilities
        scripted = isinstance(lines, ScriptedLines)
        self.capabilities = replace(able, sampling=able.sampling and not scripted)

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Ask the user in the model's place, if a user is at the terminal."""
        return await self._respondent.sample(request, step_id=step_id)

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        """Show ``question`` and its branch, and return the answer."""
        if self._place_of is not None and (place := await self._place_of(step_id)):
            question = question.model_copy(update={"message": f"[{place}] {question.message}"})
        if isinstance(self._lines, ScriptedLines):
            async with self._lock:
                return await self._from_script(self._lines, question)
        try:
            return await self._respondent.elicit(question)
        except AnswerError as error:
            self._console.say(f"The question is cancelled: {error}.")
            return ElicitReply(action="cancel")

    async def _from_script(self, lines: ScriptedLines, question: Question) -> ElicitReply:
        self._console.say(f"? {question.message}")
        typed = await lines.answer()
        if typed is None:
            self._console.say(
                "Declined: there is no terminal to ask at, and the next line is not /answer."
            )
            return ElicitReply(action="decline")
        try:
            reply = read_answer(question, typed)
        except SessionError as error:
            self._console.say(f"Declined: {error}")
            return ElicitReply(action="decline")
        given = "" if reply.content is None else f" {json.dumps(reply.content)}"
        self._console.say(f"> {reply.action}{given}")
        return reply
