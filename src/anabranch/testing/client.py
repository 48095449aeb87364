"""A client that answers as a test tells it, and remembers what it was asked.

Source: predecessors, "Mock client"; seed 000, "Testing".
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pydantic import BaseModel

from anabranch.edges.direct import AnswerError
from anabranch.elicitation import Accepted, Cancelled, Declined
from anabranch.host import Capabilities
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)

__all__ = ["LogCall", "MockClient", "MockExhausted", "NotifyCall"]

R = TypeVar("R", bound=BaseModel)

Sample: TypeAlias = "str | SampleReply | BaseModel | Mapping[str, Any] | Exception"
Elicit: TypeAlias = (
    "Mapping[str, Any] | BaseModel | Accepted[Any] | Declined | Cancelled | Exception"
)
Samples: TypeAlias = "Iterable[Sample | Callable[..., Any]] | Callable[..., Any]"
Elicits: TypeAlias = "Iterable[Elicit | Callable[..., Any]] | Callable[..., Any]"


class MockExhausted(AssertionError):
    """The tool asked more often than the test had answers for."""


class LogCall(NamedTuple):
    """One log line."""

    level: LogLevel
    message: str


class NotifyCall(NamedTuple):
    """One progress message."""

    message: str
    progress: float | None
    total: float | None


class MockClient:
    """Answers from queues, or by functions.

    Args:
        samples: the model's replies in order: a text, a ``SampleReply`` (or its JSON), a model
            instance (given as JSON text), an exception, or a function of the ``SampleRequest``
            that returns one of these, sync or async. One function alone answers always.
        elicits: the person's answers in order: a dict or a model instance (accepted with that
            content), ``Accepted``, ``Declined()``, ``Cancelled()``, an exception, or a function
            of the ``ElicitRequest`` (or ``UrlRequest``). One function alone answers always.
        capabilities: what the client can do: a set of names (``{"sampling", "elicitation"}``;
            each stands for its finer ones too), or :class:`Capabilities`. All by default.

    Attributes:
        sample_calls, elicit_calls: the requests, in the order in which they came.
        log_calls, notify_calls: the notices.

    An exception among the answers reaches the tool as ``StepFailed``. When a queue runs dry,
    :class:`MockExhausted` is raised by ``run_tool``, past the tool.
    """

    def __init__(
        self,
        samples: Samples = (),
        elicits: Elicits = (),
        *,
        capabilities: Capabilities | Iterable[str] | None = None,
    ) -> None:
        self._samples = samples if callable(samples) else deque(samples)
        self._elicits = elicits if callable(elicits) else deque(elicits)
        self.capabilities = _capabilities(capabilities)
        self.reset()

    def reset(self) -> None:
        """Forget what was asked; what is left in the queues stays."""
        self.sample_calls: list[SampleRequest] = []
        self.elicit_calls: list[ElicitRequest | UrlRequest] = []
        self.log_calls: list[LogCall] = []
        self.notify_calls: list[NotifyCall] = []

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer as the model."""
        self.sample_calls.append(request)
        said = await _next(self._samples, "samples", len(self.sample_calls), request)
        if isinstance(said, SampleReply):
            return said
        if isinstance(said, Mapping):
            return SampleReply.model_validate(said)
        text = said.model_dump_json() if isinstance(said, BaseModel) else said
        if not isinstance(text, str):
            raise TypeError(f"MockClient cannot make a model's reply of {said!r}")
        return SampleReply.model_validate(
            {"content": text, "model": "mock", "stop_reason": "endTurn"}
        )

    async def elicit(self, request: ElicitRequest | UrlRequest) -> ElicitReply:
        """Answer as the person."""
        self.elicit_calls.append(request)
        done = await _next(self._elicits, "elicits", len(self.elicit_calls), request)
        if isinstance(done, ElicitReply):
            return done
        if isinstance(done, Declined | Cancelled):
            return ElicitReply(action=done.action)
        content = done.content if isinstance(done, Accepted) else done
        if isinstance(content, BaseModel):
            content = content.model_dump(mode="json")
        if content is not None and not isinstance(content, Mapping):
            raise TypeError(f"MockClient cannot make a person's answer of {done!r}")
        return ElicitReply(action="accept", content=None if content is None else dict(content))

    async def log(self, level: LogLevel, message: str) -> None:
        """Remember a log line."""
        self.log_calls.append(LogCall(level, message))

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        """Remember a progress message."""
        self.notify_calls.append(NotifyCall(message, progress, total))


async def _next(
    source: deque[Any] | Callable[..., Any], queue: str, number: int, request: object
) -> Any:
    if isinstance(source, deque):
        if not source:
            raise MockExhausted(
                f"MockClient({queue}=…) has no answer number {number}; it was asked: {request!r}"
            )
        answer = source.popleft()
    else:
        answer = source
    try:
        if callable(answer):
            answer = answer(request)
            if inspect.isawaitable(answer):
                answer = await answer
    except AssertionError:
        raise
    except Exception as error:
        answer = error
    if isinstance(answer, AnswerError):
        raise answer
    if isinstance(answer, Exception):
        raise AnswerError(str(answer), type(answer).__name__) from answer
    return answer


def _capabilities(given: Capabilities | Iterable[str] | None) -> Capabilities:
    if given is None:
        return Capabilities()
    if isinstance(given, Capabilities):
        return given
    names = set(given)
    known = Capabilities().names()
    if unknown := names - known:
        raise ValueError(f"Unknown capabilities {sorted(unknown)}; known are {sorted(known)}")
    return Capabilities(
        sampling="sampling" in names,
        sampling_tools=bool(names & {"sampling", "sampling.tools"}),
        elicitation="elicitation" in names,
        elicitation_url=bool(names & {"elicitation", "elicitation.url"}),
    )
