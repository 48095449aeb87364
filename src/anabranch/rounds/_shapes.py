"""The two ends of a round: the tool's value, or open questions with a sealed state.

Both have a form in plain JSON, since a framework stores it while it pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from anabranch._engine import Ask
from anabranch._text import encodable
from anabranch.messages import ElicitRequest, SampleRequest, UrlRequest

T = TypeVar("T")

QuestionKind: TypeAlias = Literal["form", "url", "sample"]
"""The kind of answer: a user's in a form, a user's on a page, or a model's."""

_KINDS: Mapping[str, tuple[QuestionKind, type[ElicitRequest | UrlRequest | SampleRequest]]] = {
    "elicit": ("form", ElicitRequest),
    "url": ("url", UrlRequest),
    "sample": ("sample", SampleRequest),
}
_SHAPES = dict(_KINDS.values())


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """The call has ended: the tool has returned ``value``."""

    value: T


@dataclass(frozen=True, slots=True)
class Question:
    """An open question.

    Attributes:
        id: the key for an answer.
        kind: the kind of answer.
        request: the request, as in MCP.
    """

    id: str
    kind: QuestionKind
    request: ElicitRequest | UrlRequest | SampleRequest

    @property
    def message(self) -> str:
        """The text of the question; for a sample, the text of its last message."""
        request = self.request
        return request.messages[-1].text if isinstance(request, SampleRequest) else request.message

    def to_json(self) -> dict[str, Any]:
        """Return the question as plain JSON: ``id``, ``kind``, and the fields of the request.

        A form has ``message``, ``requested_schema``, and possibly ``context`` and ``key``; a page
        has ``message`` and ``url``.
        """
        return encodable(
            {
                "id": self.id,
                "kind": self.kind,
                **self.request.model_dump(mode="json", exclude_none=True),
            }
        )

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Question:
        """Return the question from which :meth:`to_json` made ``stored``.

        Raises:
            ValueError: if ``stored`` is not such JSON.
        """
        kind = stored.get("kind")
        if kind not in _SHAPES or not isinstance(stored.get("id"), str):
            raise ValueError("This is not the JSON of a question.")
        return cls(stored["id"], kind, _SHAPES[kind].model_validate(stored))


@dataclass(frozen=True, slots=True)
class Asked:
    """The call waits.

    Attributes:
        questions: the open questions. Without any, the call only sleeps.
        state: the state from which the next round continues. It is sealed: its holder can neither
            read nor change it, and it works only with the same tool, arguments, principal and
            audience.
        until: the time at which the call continues without an answer, in seconds since the epoch:
            the end of a sleep, or of a sleeping branch's time. ``None`` if only an answer continues
            it.
    """

    questions: tuple[Question, ...]
    state: str
    until: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the questions as plain JSON: ``questions``, ``state`` and ``until``."""
        questions = [question.to_json() for question in self.questions]
        return {"questions": questions, "state": self.state, "until": self.until}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Asked:
        """Return the ``Asked`` from which :meth:`to_json` made ``stored``.

        Raises:
            ValueError: if ``stored`` is not such JSON.
        """
        questions, state, until = map(stored.get, ("questions", "state", "until"))
        if (
            not isinstance(questions, list)
            or not isinstance(state, str)
            or not (until is None or isinstance(until, int | float))
        ):
            raise ValueError("This is not the JSON of what a round has asked.")
        listed = cast("list[Mapping[str, Any]]", questions)
        if not all(isinstance(each, Mapping) for each in cast("list[object]", questions)):
            raise ValueError("This is not the JSON of what a round has asked.")
        return cls(tuple(map(Question.from_json, listed)), state, until)


def question_of(ask: Ask) -> Question:
    """Return the question for ``ask``."""
    kind, _ = _KINDS[ask.kind]
    return Question(ask.step_id, kind, ask.request)
