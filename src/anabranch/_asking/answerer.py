"""The port for answers to a tool's questions: from a test, a terminal, a chat, or an MCP client.

A client that lets servers ask its model may enforce a policy on its answerer.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass
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
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
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
        """Ignore the message."""

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Ignore the message."""


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
        """Pass the message to the wrapped answerer."""
        await self._answerer.log(level, message)

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Pass the message to the wrapped answerer."""
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


MINUTE = 60.0
SHOWN = 2_000
"""Maximum characters of a text that the user sees."""
STEP_ID = "allow-sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringPolicy:
    """A client's rules for the samples that servers request; by default, all are allowed.

    Attributes:
        confirm_samples: whether the user confirms each sample.
        max_samples_per_minute: the maximum samples in any sixty seconds, including those that the
            user refuses.
        never_for_tools: names of tools; the policy refuses samples during their calls.
        never_for_servers: names of servers whose samples the policy refuses.

    Raises:
        ValueError: if a number is not positive, or names are not given as a collection of texts.
    """

    confirm_samples: bool = False
    max_samples_per_minute: int | None = None
    never_for_tools: Collection[str] = frozenset()
    never_for_servers: Collection[str] = frozenset()

    def __post_init__(self) -> None:
        most = self.max_samples_per_minute
        if most is not None and (type(most) is not int or most < 1):
            raise ValueError(f"max_samples_per_minute must be a positive number, got {most!r}")
        for field in ("never_for_tools", "never_for_servers"):
            given: Collection[object] = getattr(self, field)
            names = () if isinstance(given, str) else frozenset(given)
            if isinstance(given, str) or not all(isinstance(n, str) and n for n in names):
                raise ValueError(f"{field} takes several names, each a text, got {given!r}")
            object.__setattr__(self, field, names)

    def applied_to(
        self, answerer: Answerer, *, server: str = "", now: Callable[[], float] = time.monotonic
    ) -> PolicedAnswerer:
        """Return ``answerer`` restricted by this policy, for one connection to a server.

        Args:
            answerer: answers the allowed requests; its user confirms samples.
            server: the name of the connection's server.
            now: returns the time in monotonic seconds.
        """
        return PolicedAnswerer(self, answerer, server, now)


class PolicedAnswerer(Forwarding):
    """An ``Answerer`` that enforces a policy; :meth:`AnsweringPolicy.applied_to` makes it."""

    def __init__(
        self, policy: AnsweringPolicy, answerer: Answerer, server: str, now: Callable[[], float]
    ) -> None:
        super().__init__(answerer)
        self._policy = policy
        self._server = server
        self._now = now
        self._tools: Counter[str] = Counter()
        self._times: deque[float] = deque(maxlen=policy.max_samples_per_minute)

    @contextmanager
    def calling(self, tool: str) -> Generator[None]:
        """Count samples in the ``with`` block as samples of ``tool``, which servers do not name."""
        self._tools[tool] += 1
        try:
            yield
        finally:
            self._tools -= Counter([tool])

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Let the wrapped answerer answer as the model, if the policy allows the sample.

        Raises:
            AnswerError: if the policy refuses the sample.
        """
        if (problem := self._exclusion() or self._excess()) is None:
            problem = await self._objection(request)
        if problem is not None:
            raise AnswerError(problem, REFUSED)
        return await super().sample(request, step_id=step_id)

    def _exclusion(self) -> str | None:
        if self._server in self._policy.never_for_servers:
            return f"This client answers no samples for the server {self._server!r}."
        tool = next((name for name in self._tools if name in self._policy.never_for_tools), None)
        return None if tool is None else f"This client answers no samples for the tool {tool!r}."

    def _excess(self) -> str | None:
        most, now = self._policy.max_samples_per_minute, self._now()
        if most is None:
            return None
        if len(self._times) == most and now - self._times[0] < MINUTE:
            return f"This client answers at most {most} samples a minute. Ask again later."
        self._times.append(now)
        return None

    async def _objection(self, request: SampleRequest) -> str | None:
        if not self._policy.confirm_samples:
            return None
        if not self.capabilities.elicitation:
            return "This client asks its user before each sample, and no user is here to ask."
        form: dict[str, JsonValue] = {"type": "object", "properties": {}}
        asked = ElicitRequest(message=self._described(request), requested_schema=form)
        reply = await self.elicit(asked, step_id=STEP_ID)
        return None if reply.action == "accept" else "The user does not allow this sample."

    def _described(self, request: SampleRequest) -> str:
        asks = (
            f"The server {self._server!r} asks your model"
            if self._server
            else "Your model is asked"
        )
        tools = f", in a call of {', '.join(self._tools)}" if self._tools else ""
        lines = [f"{asks}{tools} (up to {request.max_tokens} tokens):"]
        if request.system_prompt:
            lines.append(f"  system: {_part(request.system_prompt)}")
        *earlier, last = request.messages
        if earlier:
            lines.append(f"  ({len(earlier)} earlier messages)")
        lines += [f"  {last.role}: {_part(_text(last))}", "Do you allow it?"]
        return "\n".join(lines)


def _text(message: Message) -> str:
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"<{block.type}>"
        for block in message.content
    )


def _part(text: str) -> str:
    more = len(text) - SHOWN
    return text if more <= 0 else f"{text[:SHOWN]} … ({more} more characters)"
