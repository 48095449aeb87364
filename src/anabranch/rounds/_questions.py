"""The end of a round, a value or open questions, and the check of answers for the next round.

A form's schema is checked here. A validator of the author's model runs when the body takes the
answer; if it refuses, the tool asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ValidationError

from anabranch._asking import Accepted, AnswerError, Cancelled, Declined, answer_of_error, describe
from anabranch._engine import Answer, Ask
from anabranch._schemas import filled_in, misfits
from anabranch._text import encodable, number_problem
from anabranch.errors import AnabranchError
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, UrlRequest

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
    """An open question of a call, to the user or to the model.

    Attributes:
        id: the key of the answer in ``answers``.
        kind: the kind of question: a form, a URL or a sample.
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

        A form has ``message``, ``requested_schema``, and possibly ``context`` and ``key``; a URL
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
        """Return the question that :meth:`to_json` stored.

        Raises:
            ValueError: if ``stored`` is not such JSON.
        """
        kind = stored.get("kind")
        if kind not in _SHAPES or not isinstance(stored.get("id"), str):
            raise ValueError("This is not the JSON of a Question.")
        return cls(stored["id"], kind, _SHAPES[kind].model_validate(stored))


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that waits for answers or for the end of a sleep: its questions and sealed state.

    Attributes:
        questions: the open questions; empty if the call only sleeps.
        state: the state to pass to the next round. The state is sealed: its holder can neither read
            nor change it. The state is valid only for the same tool, arguments, principal and
            audience.
        until: the time at which the call continues without an answer, in seconds since the epoch:
            the end of a sleep, or the deadline of a branch. ``None`` if only an answer continues
            the call.
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
        """Return the ``Asked`` that :meth:`to_json` stored.

        Raises:
            ValueError: if ``stored`` is not such JSON.
        """
        questions, state, until = map(stored.get, ("questions", "state", "until"))
        if (
            not isinstance(questions, list)
            or not isinstance(state, str)
            or not (until is None or isinstance(until, int | float))
        ):
            raise ValueError("This is not the JSON of an Asked.")
        listed = cast("list[Mapping[str, Any]]", questions)
        if not all(isinstance(each, Mapping) for each in cast("list[object]", questions)):
            raise ValueError("This is not the JSON of an Asked.")
        return cls(tuple(map(Question.from_json, listed)), state, until)


def question_of(ask: Ask) -> Question:
    kind, _ = _KINDS[ask.kind]
    return Question(ask.step_id, kind, ask.request)


AnswerLike: TypeAlias = (
    ElicitReply
    | SampleReply
    | Accepted[Any]
    | Declined
    | Cancelled
    | AnswerError
    | Mapping[str, Any]
)
"""An answer: a reply, or its JSON, such as ``{"action": "accept", "content": {"nights": 2}}``.

An :class:`anabranch.AnswerError` means that the answering side has failed; the tool gets a ``StepFailed``.
"""


@dataclass(eq=False, repr=False)
class InvalidAnswerError(AnabranchError, recordable=False):
    """The answer to ``question`` was refused for the reason ``problem``; nothing has run."""

    question: str
    problem: str

    def __str__(self) -> str:
        return (
            f"The answer to {self.question!r} is refused: {self.problem}."
            " Nothing has run; correct the answer and send it again."
        )


def checked_answers(
    given: Mapping[str, AnswerLike],
    questions: Mapping[str, tuple[str, str]],
    forms: Mapping[str, Mapping[str, Any]],
) -> dict[str, Answer]:
    """Return the answers ``given`` to open ``questions``; an answer to one of ``forms`` is checked."""
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
        asked = next(iter(questions), "")
        raise InvalidAnswerError(
            asked, "answers are given by the ids of their questions, {id: answer}"
        )
    return {
        step_id: _checked(step_id, each, questions, forms.get(step_id))
        for step_id, each in given.items()
    }


def _checked(
    step_id: str,
    given: AnswerLike,
    questions: Mapping[str, tuple[str, str]],
    form: Mapping[str, Any] | None,
) -> Answer:
    if step_id not in questions:
        known = ", ".join(map(repr, questions)) or "none"
        raise InvalidAnswerError(step_id, f"it is not asked (open questions: {known})")
    kind = questions[step_id][0]
    if isinstance(given, AnswerError):
        return answer_of_error(kind, step_id, given.code, str(given), given.data)
    reply = _read(step_id, kind, given)
    value = reply.model_dump(mode="json", exclude_none=True)
    if (problem := number_problem(value)) is not None:
        raise InvalidAnswerError(step_id, problem)
    if form is not None and isinstance(reply, ElicitReply) and reply.action == "accept":
        wrong = misfits(form, filled_in(form, reply.content or {}))
        if problems := "; ".join(f"{field or 'answer'}: {why}" for field, why in wrong):
            raise InvalidAnswerError(step_id, problems)
    return Answer(value)


def read_reply(question: str, given: AnswerLike) -> ElicitReply:
    if isinstance(given, ElicitReply):
        return given
    return cast("ElicitReply", _read(question, "elicit", given))


def _read(step_id: str, kind: str, given: object) -> ElicitReply | SampleReply:
    match given:
        case Accepted():
            content: object = cast("Accepted[object]", given).content
            data = content.model_dump(mode="json") if isinstance(content, BaseModel) else content
            given = {"action": "accept", "content": data}
        case Declined() | Cancelled():
            given = {"action": given.action}
        case BaseModel():
            given = given.model_dump()
        case _:
            pass
    try:
        return (SampleReply if kind == "sample" else ElicitReply).model_validate(given)
    except ValidationError as error:
        content = ', "content": {…}' if kind == "elicit" else ""
        wanted = (
            f'it must be {{"action": "accept"{content}}}, {{"action": "decline"}} or'
            ' {"action": "cancel"}'
        )
        if kind == "sample":
            wanted = f"it is not a model's reply ({describe(error)})"
        raise InvalidAnswerError(step_id, wanted) from error
