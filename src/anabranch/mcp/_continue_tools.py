"""The tools that continue a call by its handle, and reply like the continued tool.

``continue_call`` asks the open questions of a call that needs more rounds than its client allows.
``answer_questions`` takes the answers of a user whose client shows no questions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from anabranch._engine import Answer, Journal
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._eras import ROUND_REPLIES, answers_to, unmarked
from anabranch.mcp._request import McpRequest
from anabranch.mcp._service import OpenCall, Service
from anabranch.mcp._serving import Chain, Serving, sendable
from anabranch.mcp._unfinished import ANSWER_QUESTIONS, CONTINUE_CALL
from anabranch.tool import Parameters, ToolAnnotations

Handle = Annotated[str, Field(description="The handle in the earlier result.")]


class UserAnswer(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    question: str = Field(description="The question's name in the earlier result.")
    action: Literal["accept", "decline", "cancel"] = Field(
        description="accept: the user has answered; decline: the user does not want to; cancel:"
        " the user wants to stop."
    )
    content: dict[str, JsonValue] = Field(
        default_factory=dict, description="With accept: the fields, fitting the question's schema."
    )


def _continue(call: Handle) -> None:
    """Declare the parameters of ``continue_call``."""


def _answer(
    call: Handle,
    answers: Annotated[
        list[UserAnswer],
        Field(
            description="The user's answers. Without answers, the result lists the questions again."
        ),
    ] = [],  # noqa: B006 - read by pydantic, which copies it
) -> None:
    """Declare the parameters of ``answer_questions``."""


class ContinueTool:
    annotations: ToolAnnotations | None = None
    returns: Any = inspect.Signature.empty  # the value of the continued tool

    def __init__(
        self,
        service: Service,
        name: str,
        title: str,
        description: str,
        signature: Callable[..., None],
    ) -> None:
        self.name = name
        self.title = title
        self.description = description
        self._parameters = Parameters(name, signature, ())
        self.input_schema: dict[str, Any] = self._parameters.schema
        self._service = service

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self._parameters.validate(arguments)

    async def serve(self, arguments: Mapping[str, Any], request: McpRequest) -> object:
        return sendable(await self._served(arguments, request))

    async def _served(self, arguments: Mapping[str, Any], request: McpRequest) -> object:
        service, handles = self._service, self._service.handles
        serving = Serving(service, request)
        if request.state is not None:
            begins, state = unmarked(request.state)
            call = await handles.open(arguments["call"], request.principal)
            journal = await service.calls.stored.load(state)
            call = OpenCall(call.tool, call.arguments, journal)
            answers = answers_to(journal, request.responses)
            return await serving.run_rounds(call, answers, Chain(begins, marks=True))
        try:
            call = await handles.open(arguments["call"], request.principal)
            given: list[UserAnswer] = arguments.get("answers", [])
            answers = _answers(given, call.journal)
            entered = await service.calls.stored.entered(call.journal)  # the round takes them
            if not answers and not entered and service.calls.durability is not None:
                return await self._reopen(call, serving)
            return await serving.run_rounds(call, answers, Chain(call.journal.rounds, marks=True))
        except InvalidTokenError as refusal:
            raise ToolError(
                "This handle names no call that can continue: it is invalid or expired, or its"
                " questions are answered. Use the handle of the latest result, or call the tool"
                " again."
            ) from refusal

    async def _reopen(self, call: OpenCall, serving: Serving) -> object:
        """Ask all questions that are open now, also those newer than the handle."""
        service = self._service
        waiting = await service.calls.stored.waiting(call.journal.line, ROUND_REPLIES)
        if waiting is None:
            raise InvalidTokenError
        reply, last = waiting
        call = OpenCall(call.tool, call.arguments, await service.calls.stored.load(last.state))
        if service.by_rounds(serving.request):
            chain = Chain(last.number, marks=True)
            return await serving.ask_client(call, reply, chain, last.number)
        return await serving.run_live(call)


def continue_call(service: Service) -> ContinueTool:
    return ContinueTool(
        service,
        CONTINUE_CALL,
        "Continue a call",
        "Continue a tool call that stopped because it needed more answers than one request may"
        " ask for. It continues exactly where it stopped.",
        _continue,
    )


def answer_questions(service: Service) -> ContinueTool:
    return ContinueTool(
        service,
        ANSWER_QUESTIONS,
        "Answer questions",
        "Give the user's answers to the questions in the result of another tool, and continue that"
        " tool. Ask the user first; never answer for the user.",
        _answer,
    )


def _answers(given: list[UserAnswer], journal: Journal) -> dict[str, Answer]:
    forms = [step_id for step_id, (kind, _) in journal.questions.items() if kind != "sample"]
    answers: dict[str, Answer] = {}
    for each in given:
        if each.question not in forms or each.question in answers:
            raise ToolError(
                f"Question {each.question[:100]!r} is not open, or is answered twice. Give one"
                f" answer to each of: {', '.join(map(repr, forms))}."
            )
        content: dict[str, JsonValue] = {"content": each.content} if each.action == "accept" else {}
        answers[each.question] = Answer({"action": each.action, **content})
    return answers
