"""The reply of a turn, read from its events, or the error that the server reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import httpx2
from ag_ui.core import (
    CustomEvent,
    Event,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
)
from pydantic import BaseModel, ValidationError

from anabranch.errors import AnabranchError

B = TypeVar("B", bound=BaseModel)

LONGEST = 2_000
"""The most characters of a server's message that an error repeats."""

UNAUTHORIZED = 401
ADVICE = {
    UNAUTHORIZED: "Give the server's token: token=….",
    403: "The server refuses this client.",
    404: "There is no chat at this address.",
    421: "The server does not accept this host name; see its --allowed-host.",
    429: "The server accepts no more requests now. Try again later.",
}
"""The advice for a refusal that the server does not explain."""


class ChatClientError(AnabranchError):
    """The chat server could not be reached, refused a request, or failed; the message says why.

    Attributes:
        status: the HTTP status of a refusal. 401: the token is missing or invalid. 404: the thread
            or the question does not exist. 409: a turn is running, or a question has another
            answer. 410: a question has expired. 422: a message or an answer does not fit. 429: too
            many requests. ``None`` if the server refused nothing.
        reason: the reason why the server refused an answer: ``unknown``, ``answered``, ``expired``
            or ``invalid``.
        errors: the problems of an answer, by field; an empty name has the problem of the whole
            answer.
        retry_after: seconds to wait before the next attempt, if the server sent a time.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        errors: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.errors: Mapping[str, str] = errors or {}
        self.retry_after = retry_after
        super().__init__(message, message=message, status=status, reason=reason)


class _FieldProblem(BaseModel):
    field: str
    message: str


class _Refusal(BaseModel):
    error: str = ""
    reason: str = ""
    errors: list[_FieldProblem] = []


async def check_response(response: httpx2.Response) -> None:
    if response.is_success:
        return
    status = response.status_code
    try:
        refusal = _Refusal.model_validate_json(await response.aread())
    except ValidationError:  # the body comes from a proxy or another server
        refusal = _Refusal()
    said = refusal.error[:LONGEST] or ADVICE.get(status, f"The server answered with {status}.")
    if status == UNAUTHORIZED:
        said = ADVICE[status]  # the server's own words are for a browser
    seconds = response.headers.get("retry-after", "")
    raise ChatClientError(
        said,
        status=status,
        reason=refusal.reason,
        errors={each.field: each.message for each in refusal.errors},
        retry_after=float(seconds) if seconds.isdecimal() else None,
    )


def read_text(model: type[B], text: str | bytes) -> B:
    try:
        return model.model_validate_json(text)
    except ValidationError as problem:
        raise ChatClientError(
            "The server at this address is no chat, or a chat of another release."
        ) from problem


NODE = "anabranch.node"
"""The custom event that announces a node of the tree."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The last reply of a turn.

    Attributes:
        text: the model's last text; empty if the model wrote no text.
        node_id: the id of the reply's node in the conversation tree; ``None`` if the server sent no
            id.
        is_stopped: whether the turn stopped before its end.
    """

    text: str = ""
    node_id: str | None = None
    is_stopped: bool = False

    def __str__(self) -> str:
        return self.text


class ReplyReader:
    """Reads the last reply of a turn from events, and skips the replies of branches."""

    def __init__(self) -> None:
        self.reply: ChatReply = ChatReply()

    def read(self, event: Event) -> None:
        if getattr(event, "subagent_run_id", None) is not None:
            return
        match event:
            case TextMessageStartEvent():
                self.reply = ChatReply()
            case TextMessageContentEvent(delta=delta):
                self.reply = ChatReply(self.reply.text + delta)
            case CustomEvent(name=name, value=value) if name == NODE and isinstance(value, dict):
                self._read_node(cast("Mapping[str, Any]", value))
            case RunFinishedEvent(outcome=RunFinishedCancelledOutcome()):
                self.reply = ChatReply(self.reply.text, self.reply.node_id, is_stopped=True)
            case _:
                pass

    def _read_node(self, node: Mapping[str, Any]) -> None:
        if node.get("kind") == "assistant":
            blocks = cast("list[Mapping[str, Any]]", node.get("content") or [])
            text = "".join(str(each["text"]) for each in blocks if each.get("type") == "text")
            self.reply = ChatReply(text, str(node.get("id")))
