"""Rules for requests that a client repeats after a lost connection.

A client repeats a first request only under an idempotency key, and only if the tool takes such
keys: then the server stores the call, and nothing happens twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, cast

import mcp_types as types
from mcp import MCPError

from anabranch._asking import Answerer, Forwarding
from anabranch.mcp._protocol import KEY_META, TAKES_KEY_META
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    SampleReply,
    SampleRequest,
    UrlRequest,
)

PAUSES: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition of a request; after the last, the client gives the connection up."""


def new_key() -> str:
    """Return an idempotency key that nobody can guess."""
    return str(uuid.uuid4())


def keyed_meta(key: str) -> types.RequestParamsMeta:
    """Return the ``_meta`` of a request under ``key``."""
    return cast("types.RequestParamsMeta", {KEY_META: key})


def takes_key(tool: types.Tool) -> bool:
    """Return whether the server repeats the reply of ``tool`` to a keyed request."""
    return (tool.meta or {}).get(TAKES_KEY_META) is True


def is_lost(error: BaseException | None) -> bool:
    """Return whether ``error`` reports a connection that was lost, or could not be made."""
    return any(
        cause.error.code == types.CONNECTION_CLOSED
        if isinstance(cause, MCPError)
        else isinstance(cause, OSError) or type(cause).__module__.startswith("http")
        for cause in causes(error)
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the errors in an exception group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from causes(inner)
    elif error is not None:
        yield error


class Remembering(Forwarding):
    """An ``Answerer`` that asks each question once, since a repeated call repeats its questions.

    Args:
        answerer: answers new questions.
    """

    def __init__(self, answerer: Answerer) -> None:
        super().__init__(answerer)
        self._answers: dict[tuple[str, str], Any] = {}

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Return the model's earlier answer, or ask."""
        asked = (step_id, request.model_dump_json())
        if asked not in self._answers or not step_id:
            self._answers[asked] = await super().sample(request, step_id=step_id)
        reply: SampleReply = self._answers[asked]
        return reply

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        """Return the user's earlier answer, or ask."""
        asked = (step_id, request.model_dump_json())
        if asked not in self._answers or not step_id:
            self._answers[asked] = await super().elicit(request, step_id=step_id)
        reply: ElicitReply = self._answers[asked]
        return reply
