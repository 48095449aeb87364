"""The command line's ``Answerer``: answers from a file, a model, or the user at the terminal.

With ``--answers`` the command asks no user, so that a script behaves the same everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from anabranch._asking import AnswerError, Capabilities, Sampler, fields_asked_again
from anabranch._schemas import filled_in, misfits
from anabranch._terminal.answer_file import Answers, first_attempt, key_of
from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError
from anabranch._text import json_line
from anabranch.errors import REFUSED
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    UrlRequest,
)

NO_MODEL = "give --model NAME or set ANABRANCH_MODEL"
MOST_NAMED = 100
"""The most questions that a report about unfitting answers names."""


class Respondent:
    def __init__(
        self, console: Console, *, sampler: Sampler | None = None, answers: Answers | None = None
    ) -> None:
        self._console = console
        self._sampler = sampler
        self._answers = answers
        self._asks_user = console.interactive and answers is None
        self._notices = 0
        self._asked: dict[str, None] = {}
        self._unfit: dict[str, str] = {}
        self._typed: deque[tuple[object, Mapping[str, JsonValue]]] = deque(maxlen=16)

    @property
    def capabilities(self) -> Capabilities:
        scripted = self._answers is not None and self._answers.samples
        return Capabilities(
            sampling=self._sampler is not None or scripted or self._asks_user,
            sampling_tools=self._sampler is not None,
        )

    async def sample(self, request: SampleRequest, /, *, step_id: str = "") -> SampleReply:
        reply = self._answers.sample(step_id) if self._answers is not None else None
        if reply is not None:
            return reply
        if self._sampler is not None:
            return await self._from_model(self._sampler, request)
        if self._asks_user:
            return await self._from_user(request)
        self._console.say(f"No answer is left for the model's step {step_id or '?'}: {NO_MODEL}.")
        raise AnswerError("the client has no model")

    async def elicit(
        self, request: ElicitRequest | UrlRequest, /, *, step_id: str = ""
    ) -> ElicitReply:
        if self._answers is not None:
            return self._from_file(self._answers, step_id, request)
        if not self._asks_user:
            self._console.say(
                f"Declined {_named(step_id, request)}: there is no terminal to ask at."
                " Give --answers FILE."
            )
            return ElicitReply(action="decline")
        from anabranch._terminal.forms import HINT, ask_consent

        async with self._console.question():
            self._console.show(f"\n{request.message}")
            if isinstance(request, UrlRequest):
                self._console.show(f"  {request.url}\n{HINT}")
                reply = await ask_consent()
            else:
                self._console.show(HINT)
                reply = await self._from_form(request)
            if reply.action != "accept":
                self._console.show(f"> {reply.action}")
            return reply

    def say(self, line: str) -> None:
        self._console.say(line)

    async def log(self, level: LogLevel, message: str) -> None:
        self._console.say(f"[{level}] {message}")

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        self._notices += 1
        progress = self._notices if progress is None else progress
        far = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        self._console.say(f"[{far}] {message}" if message else f"[{far}]")

    def report_left(self) -> None:
        for entry in self._answers.unused() if self._answers is not None else ():
            self._console.say(f"No question used the answer {entry}. {self._were_asked()}")

    def require_fitting(self) -> None:
        if self._unfit:
            raise FailedError(f"{' '.join(self._unfit.values())} {self._were_asked()}")

    def _were_asked(self) -> str:
        return (
            f"The tool asked: {', '.join(self._asked)}."
            if self._asked
            else "The tool asked nothing."
        )

    async def _from_form(self, request: ElicitRequest) -> ElicitReply:
        """Show the form; after an answer that did not fit, show only the refused fields."""
        schema = request.requested_schema
        names = cast("Mapping[str, object]", schema.get("properties") or {})
        question, refused = fields_asked_again(request.message, names)
        typed = None
        if question != request.message:
            typed = next((said for asked, said in self._typed if asked == (question, schema)), None)
        from anabranch._terminal.forms import ask_form

        reply = await ask_form(request, typed, refused if typed is not None else ())
        if reply.content is not None:
            self._typed.appendleft(((question, schema), reply.content))
        return reply

    def _from_file(
        self, answers: Answers, step_id: str, request: ElicitRequest | UrlRequest
    ) -> ElicitReply:
        reply = answers.elicit(step_id)
        if len(self._asked) < MOST_NAMED:
            self._asked[key_of(step_id) or request.message] = None
        if reply is None:
            missing = f"No answer is left for {_named(step_id, request)}: declined."
            self._unfit.setdefault(first_attempt(step_id) or request.message, missing)
            self._console.say(missing)
            return ElicitReply(action="decline")
        if isinstance(request, ElicitRequest) and reply.content is not None:
            content = filled_in(request.requested_schema, reply.content)
            reply = reply.model_copy(update={"content": content})
        given = "" if reply.content is None else f" {json_line(reply.content)}"
        self._console.say(f"{request.message}\n> {reply.action}{given}")
        self._unfit.pop(first_attempt(step_id), None)
        if isinstance(request, ElicitRequest) and reply.action == "accept":
            wrong = misfits(request.requested_schema, reply.content or {})
            if problems := "; ".join(f"{field or 'answer'}: {why}" for field, why in wrong):
                unfit = f"The answer{given} does not fit {_named(step_id, request)}: {problems}."
                self._unfit[first_attempt(step_id)] = unfit
                self._console.say(unfit)
        return reply

    async def _from_model(self, sampler: Sampler, request: SampleRequest) -> SampleReply:
        try:
            return await sampler.sample(request)
        except Exception as error:
            # The provider's message is for the user who chose the provider, not for the server.
            self._console.say(f"The model failed: {error}")
            raise AnswerError("the client's model failed") from error

    async def _from_user(self, request: SampleRequest) -> SampleReply:
        from anabranch._terminal.forms import HINT, DismissedError, ask_text

        async with self._console.question():
            self._console.show(
                f"\nThe tool asks a model, but no model is configured ({NO_MODEL})."
                f" Answer for the model. {HINT}"
            )
            if request.system_prompt:
                self._console.show(f"  system: {request.system_prompt}")
            for message in request.messages:
                self._console.show(f"  {message.role}: {_shown(message)}")
            try:
                text = await ask_text("assistant:")
            except DismissedError as dismissed:
                why = "the user did not answer for the model"
                raise AnswerError(why, REFUSED) from dismissed
        return SampleReply(content=(TextBlock(text=text),), model="user", stop_reason="endTurn")


def _named(step_id: str, request: ElicitRequest | UrlRequest) -> str:
    first_line = request.message.partition("\n")[0]
    return f"the question {step_id!r} ({first_line})" if step_id else f"{first_line!r}"


def _shown(message: Message) -> str:
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"<{block.type}>"
        for block in message.content
    )
