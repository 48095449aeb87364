"""Converts questions of tools, and their answers, to nodes of the conversation tree, and back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from anabranch._asking import Answerer, AnswerError, answer_of_error
from anabranch._engine import Answer, Ask, AskKind
from anabranch._text import encodable
from anabranch.errors import StepFailed, ToolError, error_to_json
from anabranch.messages import ElicitReply, ElicitRequest, Shape, UrlRequest
from anabranch.tree import Node

Question: TypeAlias = ElicitRequest | UrlRequest
"""A question of a tool to the user: a form, or the visit of a URL."""


class ErrorReply(Shape):
    """An answer that raises an error in the tool, stored as the journal stores errors."""

    error: dict[str, JsonValue]


class TimeOver(Shape):
    """Marks a question whose time is over: the tool continues without an answer."""

    time_over: Literal[True]


class Left(Shape):
    """Marks a question whose user sent a message and no answer: the tool reads ``cancel``."""

    left: Literal[True]


TIME_OVER: Final = TimeOver(time_over=True)
LEFT: Final = Left(left=True)

IN_FRONT_END: Final = "call"
"""The kind of a question that is the call of a tool which the front end runs."""


class FrontEndCall(Shape):
    tool: str


class FrontEndResult(Shape):
    result: str
    is_error: bool = False


Reply: TypeAlias = ElicitReply | FrontEndResult
"""The answer to a question: of the user, or of the front end."""

Given: TypeAlias = Reply | ErrorReply | TimeOver | Left
"""An answer in its stored form."""

logger: logging.Logger = logging.getLogger("anabranch.agents")

_REQUEST: TypeAdapter[Question] = TypeAdapter(Question)
_GIVEN: TypeAdapter[Given] = TypeAdapter(Given)
_QUESTION, _OTHER = "question", "other"


# -- questions -------------------------------------------------------------------------------


def dump_ask(ask: Ask) -> dict[str, JsonValue]:
    request = ask.request.model_dump(mode="json", exclude_none=True)
    return {"step_id": ask.step_id, "kind": ask.kind, "request": request}


def load_ask(stored: Mapping[str, JsonValue]) -> Ask:
    kind = cast("AskKind", stored.get("kind", "elicit"))  # earlier releases stored none
    request = _REQUEST.validate_python(stored["request"])
    return Ask(str(stored["step_id"]), kind, request, "")


def asked_text(ask: Ask) -> str:
    request: Question | FrontEndCall = ask.request
    if isinstance(request, FrontEndCall):
        return f"Run {request.tool} in the application."
    return request.message


def is_in_front_end(question: Node) -> bool:
    return question.data.get("kind") == IN_FRONT_END


def question_of(node: Node) -> Question:
    if is_in_front_end(node):
        raise ToolError("The application that offers this tool runs it, and returns its result.")
    try:
        return cast("Question", load_ask(node.data).request)
    except (KeyError, ValidationError):
        raise _closed(node) from None


def call_of(question: Node) -> str:
    return str(question.data.get("call", ""))


def stored_with(question: Node, name: str) -> JsonValue:
    """Return a value of a question's node; refuse a question from a file, which is closed."""
    if name not in question.data:
        raise _closed(question)
    return question.data[name]


def _closed(question: Node) -> ToolError:
    return ToolError(
        f"The question {question.id!r} comes from a file and is closed: the call that asked it is"
        " not continued here. Continue with a message; the model can call the tool again."
    )


# -- answers ----------------------------------------------------------------------------


def answer_data(question: Node, reply: Given, *, other: bool) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = {**_plain(reply), _QUESTION: question.id}
    return {**data, _OTHER: True} if other else data


def answer_text(reply: Given) -> str:
    if isinstance(reply, ErrorReply):
        return "error"
    if isinstance(reply, FrontEndResult):
        return "failed" if reply.is_error else "returned"
    if isinstance(reply, TimeOver):
        return "no answer in time"
    if isinstance(reply, Left):
        return "left unanswered"
    return reply.action if reply.content is None else to_json(encodable(reply.content)).decode()


def question_id(answer: Node) -> str:
    return str(answer.data.get(_QUESTION, answer.parent_id))


def is_other_answer(answer: Node) -> bool:
    return _OTHER in answer.data


def reply_of(answer: Node) -> Given:
    beside = {"state", _QUESTION, _OTHER}  # an earlier release stored a state with each answer
    given = {name: value for name, value in answer.data.items() if name not in beside}
    return _GIVEN.validate_python(given)


def recorded_reply(answer: Node) -> Answer | None:
    reply = reply_of(answer)
    if isinstance(reply, TimeOver):
        return None
    if isinstance(reply, ErrorReply):
        return Answer(error=reply.error)
    if isinstance(reply, Left):
        reply = ElicitReply(action="cancel")
    return Answer(_plain(reply))


def same_reply(answer: Node, reply: Given) -> bool:
    return _plain(reply_of(answer)) == _plain(reply)


def _plain(reply: Given) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", reply.model_dump(mode="json", exclude_none=True))


# -- how a live answerer answers -----------------------------------------------------------------


async def answer_live(user: Answerer, question: Node) -> Given:
    request, step_id = question_of(question), str(question.data["step_id"])
    try:
        return await user.elicit(request, step_id=question.id)
    except AnswerError as error:
        answer = answer_of_error("elicit", step_id, error.code, str(error), error.data)
        declined = answer.error is None
        return ElicitReply(action="decline") if declined else ErrorReply(error=answer.error or {})
    except Exception as error:
        # The tool reads only that the answer is missing, since the error's text may contain
        # secrets.
        logger.exception("the question %r could not be asked", question.id)
        failed = StepFailed(step_id, type(error).__name__, "")
        return ErrorReply(error=error_to_json(failed) or {})
