"""``MockClient`` gives a test's prepared answers; ``MockModel`` computes replies from requests.

The order of concurrent branches is unknown, but the request to a model shows which branch asks.
"""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import BaseModel

from anabranch._asking import CAPABILITIES, Accepted, AnswerError, Cancelled, Capabilities, Declined
from anabranch.errors import AnabranchError
from anabranch.messages import (
    Block,
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolUseBlock,
    UrlRequest,
    Usage,
)
from anabranch.models import SampleStream, interrupted
from anabranch.tool import wrong_kind

Sample: TypeAlias = str | SampleReply | BaseModel | Mapping[str, Any] | Exception
Elicit: TypeAlias = (
    Mapping[str, Any] | BaseModel | Accepted[Any] | Declined | Cancelled | ElicitReply | Exception
)
SampleFunction: TypeAlias = Callable[[SampleRequest], Sample | Awaitable[Sample]]
ElicitFunction: TypeAlias = (
    Callable[[ElicitRequest | UrlRequest], Elicit | Awaitable[Elicit]]
    | Callable[[ElicitRequest], Elicit | Awaitable[Elicit]]
    | Callable[[UrlRequest], Elicit | Awaitable[Elicit]]
)
Samples: TypeAlias = Iterable[Sample | SampleFunction] | SampleFunction
Elicits: TypeAlias = Iterable[Elicit | ElicitFunction] | ElicitFunction


class MockExhausted(AnabranchError, AssertionError):  # noqa: N818 - a failed assertion
    """The tool asked more questions than the test has answers for."""


class LogCall(NamedTuple):
    """A log message that a client has received."""

    level: LogLevel
    message: str


class NotifyCall(NamedTuple):
    """A progress message that a client has received."""

    message: str
    progress: float | None
    total: float | None


class MockClient:
    """A client for tests, which answers from lists or functions and records requests.

    Args:
        samples: the model's replies in order: a text, a ``SampleReply`` (or its JSON), a model
            instance (sent as its JSON text), an exception, or a function of the ``SampleRequest``
            that returns one of these, sync or async. A single function answers every request.
        elicits: the user's answers in order: a dict or a model instance (accepted with this
            content), ``Accepted``, ``Declined()``, ``Cancelled()``, the protocol's JSON of an
            answer (``{"action": "accept", "content": …}``), an exception, or a function of the
            ``ElicitRequest`` or ``UrlRequest``. A single function answers every request.
        capabilities: the kinds of questions that the client answers, by default all:
            :class:`Capabilities`, or names such as ``{"sampling", "elicitation"}``, each of which
            includes its sub-capabilities.

    Attributes:
        sample_calls, elicit_calls: the requests, in the order of their arrival.
        log_calls, notify_calls: the log and progress messages.

    An exception among the answers reaches the tool as ``StepFailed``. When a list is used up,
    ``run_tool`` raises :class:`MockExhausted`, which the tool cannot catch.
    """

    def __init__(
        self,
        samples: Samples = (),
        elicits: Elicits = (),
        *,
        capabilities: Capabilities | Iterable[str] | None = None,
    ) -> None:
        self._samples = _Answers("samples", samples)
        self._elicits = _Answers("elicits", elicits)
        self.capabilities: Capabilities = _capabilities(capabilities)
        self.reset()

    def reset(self) -> None:
        """Clear the recorded requests and messages; unused answers remain."""
        self.sample_calls: list[SampleRequest] = []
        self.elicit_calls: list[ElicitRequest | UrlRequest] = []
        self.log_calls: list[LogCall] = []
        self.notify_calls: list[NotifyCall] = []

    async def sample(self, request: SampleRequest, /, *, step_id: str = "") -> SampleReply:
        """Record ``request``, and return the next reply of the model."""
        del step_id
        self.sample_calls.append(request)
        answer = await self._samples.next(request)
        if isinstance(answer, SampleReply):
            return answer
        if isinstance(answer, Mapping):
            return SampleReply.model_validate(dict(cast("Mapping[str, Any]", answer)))
        text = answer.model_dump_json(by_alias=True) if isinstance(answer, BaseModel) else answer
        if not isinstance(text, str):
            raise TypeError(f"MockClient cannot make a model's reply of {answer!r}")
        return SampleReply.model_validate(
            {"content": text, "model": "mock", "stop_reason": "endTurn"}
        )

    async def elicit(
        self, request: ElicitRequest | UrlRequest, /, *, step_id: str = ""
    ) -> ElicitReply:
        """Record ``request``, and return the next answer of the user."""
        del step_id
        self.elicit_calls.append(request)
        answer = await self._elicits.next(request)
        if isinstance(answer, ElicitReply):
            return answer
        if _is_reply(answer, request):
            return ElicitReply.model_validate(answer)
        if isinstance(answer, Declined | Cancelled):
            return ElicitReply(action=answer.action)
        accepted = isinstance(answer, Accepted)
        content = cast("Accepted[object]", answer).content if accepted else answer
        if isinstance(content, BaseModel):
            content = content.model_dump(mode="json", by_alias=True)
        if content is not None and not isinstance(content, Mapping):
            raise TypeError(f"MockClient cannot make a user's answer of {answer!r}")
        return ElicitReply.model_validate({"action": "accept", "content": content})

    async def log(self, level: LogLevel, message: str) -> None:
        """Record a log message."""
        self.log_calls.append(LogCall(level, message))

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        """Record a progress message."""
        self.notify_calls.append(NotifyCall(message, progress, total))


def _is_reply(answer: object, request: ElicitRequest | UrlRequest) -> bool:
    """Return whether ``answer`` is the JSON of a reply, not the content of a form with such fields."""
    if not isinstance(answer, Mapping):
        return False
    names = set(cast("Mapping[str, object]", answer))
    schema = request.requested_schema if isinstance(request, ElicitRequest) else {}
    fields = cast("Mapping[str, object]", schema.get("properties") or {})
    replies = ("accept", "decline", "cancel")
    return (
        names <= {"action", "content"}
        and cast("Mapping[str, object]", answer).get("action") in replies
        and not names <= set(fields)
    )


class _Answers:
    """A queue of answers, or one function for all of them."""

    def __init__(self, name: str, given: Iterable[object] | Callable[..., object]) -> None:
        if isinstance(given, str | bytes | Mapping | BaseModel):
            raise TypeError(f"MockClient({name}=…) takes a list of answers, or a function")
        self._name = name
        self._always = given if callable(given) else None
        self._queue: deque[object] = deque(() if callable(given) else given)
        self._taken = 0

    async def next(self, request: object) -> object:
        """Return the next answer; an exception among them is raised as ``AnswerError``."""
        answer = self._always or self._take(request)
        try:
            if callable(answer):
                answer = answer(request)
                if inspect.isawaitable(answer):
                    answer = await answer
        except AssertionError:
            raise  # an assertion of the test, not an answer
        except Exception as error:  # noqa: BLE001 - any exception is an answer
            answer = error
        if isinstance(answer, AnswerError):
            raise answer
        if isinstance(answer, Exception):
            raise AnswerError(str(answer), type(answer).__name__) from answer
        return answer

    def _take(self, request: object) -> object:
        if not self._queue:
            raise MockExhausted(
                f"MockClient({self._name}=…) has only {self._taken} answers, and was asked once"
                f" more: {request!r}"
            )
        self._taken += 1
        return self._queue.popleft()


def _capabilities(given: Capabilities | Iterable[str] | None) -> Capabilities:
    if isinstance(given, Capabilities):
        return given
    names = CAPABILITIES if given is None else set(given)
    if unknown := names - CAPABILITIES:
        raise ValueError(
            f"Unknown capabilities {sorted(unknown)}; known are {sorted(CAPABILITIES)}"
        )
    return Capabilities(
        sampling="sampling" in names,
        sampling_tools=bool(names & {"sampling", "sampling.tools"}),
        sampling_context=bool(names & {"sampling", "sampling.context"}),
        elicitation="elicitation" in names,
        elicitation_url=bool(names & {"elicitation", "elicitation.url"}),
    )


ModelAnswer: TypeAlias = str | SampleReply | Exception | AsyncIterator[str | SampleReply]
"""The answer of a mock model: a text, a whole reply, an error, or a stream."""
ModelFunction: TypeAlias = Callable[[SampleRequest], ModelAnswer | Awaitable[ModelAnswer]]
"""Computes the answer of a mock model, sync or async."""


class MockModel:
    """A model for tests, whose replies a function computes; records requests.

    Args:
        answer: returns the reply to a request: a text, a ``SampleReply`` (see :func:`calls`), an
            exception to raise, or an async iterator to stream; sync or async.

    Attributes:
        requests: the requests, in the order of their arrival.
    """

    def __init__(self, answer: ModelFunction) -> None:
        if not callable(answer):
            wanted = "a function of the request; ScriptedModel takes replies in order"
            raise wrong_kind("MockModel()", wanted, answer)
        self._answer = answer
        self.requests: list[SampleRequest] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Return the whole reply."""
        async with self.stream(request) as stream:
            async for _ in stream:
                pass
        return stream.reply

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Stream the reply word by word."""
        self.requests.append(request)
        answer = self._answer(request)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        parts = answer if isinstance(answer, AsyncIterator) else _in_words(answer)
        try:
            yield _Arriving(parts)
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()


class _Arriving:
    """A :class:`SampleStream` of texts and, at the end, the whole reply; interrupted without it."""

    def __init__(self, parts: AsyncIterator[str | SampleReply]) -> None:
        self._parts = parts
        self._received = ""
        self._whole: SampleReply | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async for part in self._parts:
            if isinstance(part, str):
                self._received += part
                return part
            self._whole = part
        raise StopAsyncIteration

    @property
    def reply(self) -> SampleReply:
        if self._whole is not None:
            return self._whole
        return interrupted(calls(), [TextBlock(text=self._received)])


async def _in_words(answer: str | SampleReply) -> AsyncGenerator[str | SampleReply]:
    reply = calls(text=answer) if isinstance(answer, str) else answer
    for word in re.findall(r"\s*\S+\s*$|\s*\S+", reply.text):
        yield word
    yield reply


def calls(
    *uses: ToolUseBlock | tuple[str, str, Mapping[str, Any]],
    text: str = "",
    usage: Usage | None = None,
) -> SampleReply:
    """Return a model's reply with tool calls, each given as ``(id, name, input)``, and a text."""
    content: list[Block] = [TextBlock(text=text)] if text else []
    content += _blocks(uses)
    stop = "toolUse" if uses else "endTurn"
    return SampleReply(content=tuple(content), model="mock", stop_reason=stop, usage=usage)


def _blocks(
    uses: Iterable[ToolUseBlock | tuple[str, str, Mapping[str, Any]]],
) -> Iterable[ToolUseBlock]:
    for use in uses:
        if isinstance(use, ToolUseBlock):
            yield use
        else:
            name, tool, given = use
            yield ToolUseBlock(id=name, name=tool, input=dict(given))
