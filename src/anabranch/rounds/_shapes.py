"""The two ends of a round: with the tool's value, or with open questions and a sealed state.

Both have a form in plain JSON, since a framework stores what it pauses with.
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
"""Who answers, and how: a person in a form, a person on a page, or a model."""

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
        id: what an answer to it is given under.
        kind: who answers, and how.
        request: what is asked, as in MCP.
    """

    id: str
    kind: QuestionKind
    request: ElicitRequest | UrlRequest | SampleRequest

    @property
    def message(self) -> str:
        """The text of the question; of a sample, that of its last message."""
        request = self.request
        return request.messages[-1].text if isinstance(request, SampleRequest) else request.message

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON: ``id``, ``kind``, and the fields of the request.

        Those of a form are ``message``, ``requested_schema``, and maybe ``context`` and ``key``; of a
        page, ``message`` and ``url``.
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
        """Return the question that :meth:`to_json` has made ``stored`` of.

        Raises:
            ValueError: it has not.
        """
        kind = stored.get("kind")
        if kind not in _SHAPES or not isinstance(stored.get("id"), str):
            raise ValueError("This is not the JSON of a question.")
        return cls(stored["id"], kind, _SHAPES[kind].model_validate(stored))


@dataclass(frozen=True, slots=True)
class Asked:
    """The call waits.

    Attributes:
        questions: what is open. Without any, the call only sleeps.
        state: what the next round continues from. It is sealed: who has it can neither read nor
            change it, and it is of use only with the same tool, arguments, principal and audience.
        until: when the call continues without an answer, in seconds since the epoch: a sleep of the
            tool ends, or the time of a branch that sleeps. ``None`` if nothing but an answer
            continues it.
    """

    questions: tuple[Question, ...]
    state: str
    until: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON: ``questions``, ``state`` and ``until``."""
        questions = [question.to_json() for question in self.questions]
        return {"questions": questions, "state": self.state, "until": self.until}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Asked:
        """Return what :meth:`to_json` has made ``stored`` of.

        Raises:
            ValueError: it has not.
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
    """Return the question that asks ``ask``."""
    kind, _ = _KINDS[ask.kind]
    return Question(ask.step_id, kind, ask.request)
