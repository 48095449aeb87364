"""The outcome of a turn of a chat, as its events say."""

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
"""Characters of what a server says that are repeated in an error."""

UNAUTHORIZED = 401
ADVICE = {
    UNAUTHORIZED: "Give the server's token: token=….",
    403: "The server refuses this client.",
    404: "There is no such chat at this address.",
    421: "The server does not know the name by which it was reached; see its --allowed-host.",
    429: "The server takes no more requests just now. Try again later.",
}
"""What to do, where the server does not say."""


class ChatClientError(AnabranchError):
    """A chat's server cannot be reached, or has refused or failed; the message says why.

    Attributes:
        status: the HTTP status of a refusal: 401 without a valid token; 404 if there is no such
            thread or question; 409 if a turn is running, or a question was answered differently;
            410 if a question has expired; 422 if a message or an answer does not fit; 429 if there
            were too many requests. ``None`` if it is none.
        reason: why an answer was refused: ``unknown``, ``answered``, ``expired`` or ``invalid``.
        errors: what is wrong with an answer, by its fields; under an empty name, what is wrong with
            it as a whole.
        retry_after: seconds after which to try again, if the server says so.
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
    """Check that the server did what was asked.

    Raises:
        ChatClientError: it did not.
    """
    if response.is_success:
        return
    status = response.status_code
    try:
        refusal = _Refusal.model_validate_json(await response.aread())
    except ValidationError:  # it comes from something else, such as a proxy
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
    """Return what the server sent, as ``model``.

    Raises:
        ChatClientError: it does not fit.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as problem:
        raise ChatClientError(
            "What answers at this address is no chat, or another release of one."
        ) from problem


NODE = "anabranch.node"
"""The custom event that announces a node of the tree."""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The last reply of a turn.

    Attributes:
        text: what the model said last; empty if it said nothing.
        node_id: the node of the tree that has it, ``None`` where the server names none.
        is_stopped: whether the turn was stopped before its end.
    """

    text: str = ""
    node_id: str | None = None
    is_stopped: bool = False

    def __str__(self) -> str:
        return self.text


class ReplyReader:
    """Reads a turn's reply from its events; what is said in branches is none of it."""

    def __init__(self) -> None:
        self.reply: ChatReply = ChatReply()

    def read(self, event: Event) -> None:
        """Take note of one event."""
        if getattr(event, "subagent_run_id", None) is not None:
            return
        match event:
            case TextMessageStartEvent():
                self.reply = ChatReply()
            case TextMessageContentEvent(delta=delta):
                self.reply = ChatReply(self.reply.text + delta)
            case CustomEvent(name=name, value=value) if name == NODE and isinstance(value, dict):
                self.read_node(cast("Mapping[str, Any]", value))
            case RunFinishedEvent(outcome=RunFinishedCancelledOutcome()):
                self.reply = ChatReply(self.reply.text, self.reply.node_id, is_stopped=True)
            case _:
                pass

    def read_node(self, node: Mapping[str, Any]) -> None:
        """Take note of a node, as the export has it."""
        if node.get("kind") == "assistant":
            blocks = cast("list[Mapping[str, Any]]", node.get("content") or [])
            text = "".join(str(each["text"]) for each in blocks if each.get("type") == "text")
            self.reply = ChatReply(text, str(node.get("id")))
