"""The port for answers to a tool's questions: from a test, a terminal, a chat, or an MCP client."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pydantic import JsonValue

from anabranch._aio import Clock, pause, run_until
from anabranch._asking.host import Capabilities
from anabranch._engine import Answer, Ask, Notice
from anabranch.errors import REFUSED, AnabranchError, StepFailed, error_to_json
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)


class AnswerError(AnabranchError):
    """An error that an :class:`Answerer` raises in place of an answer: message, ``code``, ``data``.

    The tool's ``ctx.sample`` or ``ctx.elicit`` raises ``StepFailed``. Code -1 means that the user
    has refused: ``ctx.elicit`` then returns ``Declined``. Over MCP 2026-07-28, only a saga call
    (``tools/callSaga``) can pass such an error to the tool; in other calls the error ends the call.
    """

    def __init__(self, message: str, code: str | int = "error", *, data: JsonValue = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message, message=message, code=code, data=data)


class Answerer(Protocol):
    """Answers a tool's questions to the user and to the model, and receives its notices.

    ``step_id`` identifies the question: the step of the call or, in a conversation tree, the node
    that holds the question. If the server does not report the step, ``step_id`` is empty. Several
    calls of a method may run at the same time. :meth:`sample` and :meth:`elicit` may raise
    :class:`AnswerError`; any other exception ends the call.
    """

    @property
    def capabilities(self) -> Capabilities:
        """The kinds of questions that this object answers.

        An MCP client declares forms and URLs together.
        """
        ...

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Answer ``request`` as the model."""
        ...

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        """Answer ``request`` as the user; cancelled when the tool withdraws the question."""
        ...

    async def log(self, level: LogLevel, message: str, /) -> None:
        """Receive a log message of the tool."""
        ...

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Receive a progress message; ``progress`` is ``None`` if the tool gives no number."""
        ...


class Absent:
    """An answerer without capabilities: it declines every question and drops every notice."""

    capabilities: Capabilities = Capabilities(
        sampling=False, sampling_tools=False, elicitation=False, elicitation_url=False
    )

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        del request, step_id
        raise AnswerError("there is no model to answer")

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        del request, step_id
        return ElicitReply(action="decline")

    async def log(self, level: LogLevel, message: str, /) -> None:
        """Drop the message."""

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Drop the message."""


class Forwarding:
    """The base of answerers that change another answerer: passes every call on to that answerer."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    @property
    def capabilities(self) -> Capabilities:
        """The kinds of questions that the wrapped answerer answers."""
        return self._answerer.capabilities

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        return await self._answerer.sample(request, step_id=step_id)

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        """Let the wrapped answerer answer as the user."""
        return await self._answerer.elicit(request, step_id=step_id)

    async def log(self, level: LogLevel, message: str, /) -> None:
        """Pass the message on."""
        await self._answerer.log(level, message)

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Pass the message on."""
        await self._answerer.notify(message, progress, total)


async def answer(answerer: Answerer, ask: Ask) -> Answer:
    try:
        asked = answerer.sample if ask.kind == "sample" else answerer.elicit
        reply = await asked(ask.request, step_id=ask.step_id)
        return Answer(reply.model_dump(mode="json", exclude_none=True))
    except AnswerError as error:
        return answer_of_error(ask.kind, ask.step_id, error.code, str(error), error.data)


async def answer_all(
    answerer: Answerer, asks: Collection[Ask], clock: Clock, until: float | None
) -> dict[str, Answer]:
    given: dict[str, Answer] = {}

    async def answer_each() -> None:
        for ask in asks:
            given[ask.step_id] = await answer(answerer, ask)

    if asks:
        await run_until(clock, until, answer_each())
    elif until is not None:
        await pause(clock, until - clock.now())
    return given


def answer_of_error(
    kind: str, step_id: str, code: str | int, message: str, data: JsonValue = None
) -> Answer:
    """Return the answer for a client's error: a decline if a user has refused a question."""
    if kind != "sample" and code == REFUSED:
        return Answer({"action": "decline"})
    failed = StepFailed(step_id, str(code), message, from_client=True, data=data)
    return Answer(error=error_to_json(failed))


async def deliver(answerer: Answerer, notice: Notice) -> None:
    if notice.level is not None:
        await answerer.log(notice.level, notice.message)
    else:
        await answerer.notify(notice.message, notice.progress, notice.total)
