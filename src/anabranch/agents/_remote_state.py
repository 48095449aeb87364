"""The state from which a call of an MCP server's tool is resumed; it never leaves this server."""

from __future__ import annotations

from collections.abc import Mapping

import mcp_types as types
from pydantic import BaseModel

from anabranch._engine import Answer
from anabranch.mcp._input_rounds import Response, RoundOfAnswers
from anabranch.messages import ElicitReply


def reply_in(answer: Answer) -> ElicitReply:
    """Return the person's reply; one who could not answer has cancelled."""
    if answer.error is not None:
        return ElicitReply(action="cancel")
    return ElicitReply.model_validate(answer.value)


class CallState(BaseModel):
    """What a call is resumed from; it never leaves the server.

    Attributes:
        server, tool: what was called.
        parked: the name of a call that waits in this process; ``None`` in the modern era.
        request_state: the server's own state.
        responses: to what else the server has asked at the same time.
        begun: when the call began, in seconds since the epoch.
        samples: how often it has asked the model.
    """

    server: str
    tool: str
    parked: str | None = None
    request_state: str | None = None
    responses: dict[str, Response] = {}
    begun: float | None = None
    samples: int = 0

    def answered(self, answers: Mapping[str, Answer]) -> RoundOfAnswers:
        """Return the round with the person's answers."""
        given = {
            key: types.ElicitResult.model_validate(reply_in(answer).wire())
            for key, answer in answers.items()
        }
        return RoundOfAnswers({**self.responses, **given}, self.request_state)
