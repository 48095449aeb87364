"""Calls of other servers: their questions, and the calls that wait for answers over a connection.

Only calls of the handshake era wait so, in this process.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import mcp_types as types
from pydantic import ValidationError

from anabranch._aio import cancel_and_wait
from anabranch._asking import Absent, Answerer, AnswerError, Capabilities, describe
from anabranch._schemas import Form
from anabranch.agents._remote_values import RemoteLimits
from anabranch.agents._tool_questions import Question
from anabranch.errors import ToolError
from anabranch.mcp import Reply, Request
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    Shape,
    UrlRequest,
)

MOST_HELD: Final = 100
"""Maximum calls that wait for answers; a further one cancels the oldest."""

Ended: TypeAlias = types.CallToolResult | types.InputRequiredResult


class Refused(Shape):
    reason: str


class LiveCalls:
    def __init__(self) -> None:
        self._calls: dict[str, LiveCall] = {}

    async def hold(self, call: LiveCall) -> str:
        name = str(uuid.uuid4())
        self._calls[name] = call
        if len(self._calls) > MOST_HELD:
            await self.cancel(next(iter(self._calls)))
        return name

    def take(self, name: str) -> LiveCall:
        if name not in self._calls:
            raise ToolError(
                "The server has waited for this answer over a connection that has ended, so the"
                " answer cannot reach it. Call the tool again."
            )
        return self._calls.pop(name)

    async def cancel(self, name: str) -> None:
        if (call := self._calls.pop(name, None)) is not None:
            await call.cancel()

    async def aclose(self) -> None:
        while self._calls:
            await self.cancel(next(iter(self._calls)))


class LiveCall(Absent):
    """A running call of a server's tool; the server's requests wait here for the next round."""

    def __init__(
        self, tool: str, limits: RemoteLimits, request: Callable[[LiveCall], Awaitable[Ended]]
    ) -> None:
        self._tool = tool
        self._limits = limits
        self._edge: Answerer = Absent()
        self._asked: dict[str, tuple[Request, asyncio.Future[Reply | Refused]]] = {}
        self._asking = asyncio.Event()
        self._task = asyncio.ensure_future(request(self))
        self._task.add_done_callback(_read)

    async def round(
        self, replies: Mapping[str, Reply | Refused], edge: Answerer
    ) -> Ended | dict[str, Request]:
        """Send ``replies``; return the server's result or requests. A cancelled round ends the call."""
        self._edge = edge
        for name, reply in replies.items():
            _, answered = self._asked.pop(name, (None, None))
            if answered is not None and not answered.done():
                answered.set_result(reply)
        if not self._asked:
            self._asking.clear()
        asking = asyncio.create_task(self._asking.wait())
        try:
            await asyncio.wait({self._task, asking}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            self._edge = Absent()
            await cancel_and_wait([asking])
        if self._task.done():
            return self._task.result()
        return {name: request for name, (request, _) in self._asked.items()}

    async def cancel(self) -> None:
        await cancel_and_wait([self._task])

    # -- questions and reports of the server during the call -----------------------------

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        reply = await self._answer(step_id, request)
        if isinstance(reply, SampleReply):
            return reply
        raise AnswerError(reply.reason if isinstance(reply, Refused) else "no model has answered")

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        reply = await self._answer(step_id, request)
        return reply if isinstance(reply, ElicitReply) else ElicitReply(action="cancel")

    async def _answer(self, step_id: str, request: Request) -> Reply | Refused:
        try:
            size, number = len(request.model_dump_json()), len(self._asked) + 1
            check_question(self._limits, self._tool, size, number)
        except ToolError as problem:
            raise AnswerError(str(problem)) from None
        name = f"{step_id}#{uuid.uuid4()}"  # servers may use a name twice
        answered: asyncio.Future[Reply | Refused] = asyncio.get_running_loop().create_future()
        self._asked[name] = request, answered
        self._asking.set()
        try:
            return await answered
        finally:
            self._asked.pop(name, None)
            if not self._asked:
                self._asking.clear()

    async def log(self, level: LogLevel, message: str, /) -> None:
        await self._edge.log(level, message)

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        await self._edge.notify(message, progress, total)


def _read(task: asyncio.Future[Ended]) -> None:
    if not task.cancelled():
        task.exception()


def check_question(limits: RemoteLimits, tool: str, size: int, number: int) -> None:
    if size > limits.max_question or number > limits.max_questions:
        raise ToolError(
            f"The server of {tool!r} asks too much together: {number:,} of at most"
            f" {limits.max_questions:,} questions, with {size:,} of at most {limits.max_question:,}"
            " characters."
        )


def shown(question: Question, able: Capabilities) -> Question | None:
    """Return ``question`` for users: its form without patterns, which may take for ever to match."""
    if isinstance(question, UrlRequest):
        return question if able.elicitation_url else None
    if not able.elicitation:
        return None
    try:
        form = Form.model_validate(question.requested_schema)
    except ValidationError as error:
        why = describe(error)
        raise ToolError(f"The server asks with a form that cannot be shown: {why}.") from None
    fields = form.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        include={"properties"},
        exclude={"properties": {"__all__": {"pattern"}}},
    )
    schema = {"type": "object", **fields, "required": sorted(form.required)}
    return question.model_copy(update={"requested_schema": schema})
