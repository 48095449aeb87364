"""The questions of one round of a call, and the answers that the next round is sent.

Rounds are those of MCP 2026-07-28; the SDK's own way of driving them cannot stop between two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio
import mcp_types as types

from anabranch._asking.answerer import Answerer
from anabranch.errors import ToolError
from anabranch.mcp._client_answers import answer_sample, elicit_request
from anabranch.messages import ElicitRequest, UrlRequest

Response: TypeAlias = (
    types.ElicitResult | types.CreateMessageResult | types.CreateMessageResultWithTools
)
"""The answer to one request of a round."""

UNASKED: Final = 0.1
"""Seconds before a call goes on that has only asked to be repeated."""


@dataclass(frozen=True, slots=True)
class RoundOfAnswers:
    """What the next round of a call is sent: the answers to the round before, and its state."""

    responses: Mapping[str, Response]
    state: str | None


def questions_of(asked: types.InputRequiredResult) -> dict[str, ElicitRequest | UrlRequest]:
    """Return what a round asks the person."""
    requests = (asked.input_requests or {}).items()
    return {
        key: elicit_request(key, request.params)
        for key, request in requests
        if isinstance(request, types.ElicitRequest)
    }


async def answer_others(
    asked: types.InputRequiredResult, answerer: Answerer
) -> dict[str, Response]:
    """Return what ``answerer`` answers to what a round asks, other than questions to the person.

    Raises:
        ToolError: it refuses, or what is asked has not been declared.
    """
    responses: dict[str, Response] = {}
    for key, request in (asked.input_requests or {}).items():
        if isinstance(request, types.CreateMessageRequest):
            response = await answer_sample(answerer, key, request.params)
            if isinstance(response, types.ErrorData):
                raise ToolError(f"The server's request was refused: {response.message}")
            responses[key] = response
        elif not isinstance(request, types.ElicitRequest):
            raise ToolError("The server asks for the roots of this client, which has none.")
    if not asked.input_requests:
        await anyio.sleep(UNASKED)
    return responses
