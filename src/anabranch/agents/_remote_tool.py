"""A tool of a running MCP server as a tool of an agent.

Each round of the server is a step, and its requests are asks: no recorded round runs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import anyio
import mcp_types as types
from pydantic_core import to_json

from anabranch._asking import Absent, Answerer
from anabranch._budget import UNLIMITED
from anabranch._durable import Job
from anabranch._engine import Journal, Notice, current_call, current_idempotency_key, fingerprint
from anabranch._text import encodable
from anabranch.agents._agent_tools import Outcome, ToolUse, Waiting, failed
from anabranch.agents._called_tool import CalledTool
from anabranch.agents._events import ToolNoticed
from anabranch.agents._remote_call import Ended, LiveCall, LiveCalls, Refused, check_question, shown
from anabranch.agents._remote_values import (
    RemoteLimits,
    RemoteResult,
    result_of,
    without_foreign_nulls,
)
from anabranch.agents._tool_questions import Question
from anabranch.errors import (
    BranchTimeoutError,
    BranchTokenError,
    CapabilityError,
    SampleValidationError,
    StepFailed,
    ToolError,
)
from anabranch.mcp import (
    MAX_ROUNDS,
    UNASKED,
    Reply,
    Request,
    RoundOfAnswers,
    ToolServer,
    requests_of,
)
from anabranch.messages import (
    ElicitReply,
    LogLevel,
    SampleReply,
    SampleRequest,
    Shape,
    ToolSpec,
    text_of,
)
from anabranch.tool import BranchContext, Tool

DECLINED = ElicitReply(action="decline")
REFUSALS = (BranchTokenError, CapabilityError, SampleValidationError, StepFailed, ToolError)


class ServerRound(Shape):
    """One round of a server in the journal; ``live`` names a call that waits in this process."""

    result: RemoteResult | None = None
    asks: dict[str, Request] = {}  # noqa: RUF012 - pydantic copies it
    declined: tuple[str, ...] = ()
    state: str | None = None
    live: str | None = None


class ServerTool(Tool[RemoteResult]):
    """A tool of another server; without a use ``here``, the tool runs undos alone."""

    elicits = ()
    requires = frozenset()
    limits = UNLIMITED
    parameters = ()
    returns = RemoteResult
    returned_by = RemoteResult
    drawn: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        server: ToolServer,
        listed: types.Tool,
        spec: ToolSpec,
        limits: RemoteLimits,
        live: LiveCalls,
        here: ToolUse | None = None,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.description = spec.description
        self.input_schema = dict(spec.input_schema)
        self.listed = listed
        self._server = server
        self._limits = limits
        self._live = live
        self._edge: Answerer = Absent() if here is None else Reports(here, limits.max_notices)
        self._owner = "" if here is None else here.timeline.thread.id

    def used(self, here: ToolUse) -> ServerTool:
        return ServerTool(self._server, self.listed, self.spec, self._limits, self._live, here)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return without_foreign_nulls(self.listed.input_schema, arguments)

    def to_json(self, arguments: Mapping[str, Any]) -> str:
        return to_json(encodable(dict(arguments))).decode()

    def check_value(self, value: object) -> None:
        """Accept every result, because a server's result is always JSON."""

    async def run(self, ctx: BranchContext, arguments: Mapping[str, Any]) -> RemoteResult:
        replies, before, samples = dict[str, Reply | Refused](), None, 0
        for _ in range(MAX_ROUNDS):
            step = ctx.step(self._round, arguments, replies, before, name="round", undo=self._left)
            before = await step
            if before.result is not None:
                return before.result
            samples += sum(isinstance(each, SampleRequest) for each in before.asks.values())
            if samples > (most := self._limits.max_samples):
                raise ToolError(
                    f"{self.name!r}: one call may ask the model {most} times, and this one has."
                )
            asked = [
                _sampled(ctx, each) if isinstance(each, SampleRequest) else _elicited(each)
                for each in before.asks.values()
            ]
            given = dict(zip(before.asks, await ctx.gather(*asked), strict=True))
            replies = {**dict.fromkeys(before.declined, DECLINED), **given}
        raise ToolError(f"The tool {self.name!r} has asked in more than {MAX_ROUNDS} rounds.")

    async def _round(
        self,
        arguments: Mapping[str, Any],
        replies: Mapping[str, Reply | Refused],
        before: ServerRound | None,
    ) -> ServerRound:
        if before is not None and not replies:
            await anyio.sleep(UNASKED)  # the server wants the request repeated
        if before is None and not await self._server.is_modern():
            send = partial(self._sent, arguments=arguments, answers=None)
            call = LiveCall(self.listed.name, self._limits, send)
            return await self._live_round(call, replies)
        if before is not None and before.live is not None:
            return await self._live_round(self._live.take(before.live), replies)
        answers = None if before is None else _answers(replies, before.state)
        return self._recorded(await self._sent(self._edge, arguments, answers))

    async def _live_round(
        self, call: LiveCall, replies: Mapping[str, Reply | Refused]
    ) -> ServerRound:
        ended = await call.round(replies, self._edge)
        if isinstance(ended, dict):
            return self._asking(ended, live=await self._live.hold(call))
        return self._recorded(ended)

    async def _sent(
        self, edge: Answerer, arguments: Mapping[str, Any], answers: RoundOfAnswers | None
    ) -> Ended:
        key, owner = current_idempotency_key.get() or "", self._owner
        return await self._server.call(
            self.listed.name, arguments, edge, owner=owner, key=key, answers=answers
        )

    def _recorded(self, ended: Ended) -> ServerRound:
        name, limits = self.listed.name, self._limits
        if isinstance(ended, types.CallToolResult):
            result = result_of(ended, self.listed.output_schema)
            return ServerRound(result=result.within(limits, name))
        number, size = len(ended.input_requests or ()), len(ended.model_dump_json())
        check_question(limits, name, size, number)
        return self._asking(requests_of(ended), state=ended.request_state)

    def _asking(
        self, requests: Mapping[str, Request], state: str | None = None, live: str | None = None
    ) -> ServerRound:
        able = self._edge.capabilities
        fit = {
            key: each if isinstance(each, SampleRequest) else shown(each, able)
            for key, each in requests.items()
        }
        asks = {key: each for key, each in fit.items() if each is not None}
        declined = tuple(key for key, each in fit.items() if each is None)
        return ServerRound(asks=asks, declined=declined, state=state, live=live)

    async def _left(self, round_: ServerRound) -> None:
        if round_.live is not None:
            await self._live.cancel(round_.live)


def _answers(replies: Mapping[str, Reply | Refused], state: str | None) -> RoundOfAnswers:
    given: dict[str, Reply] = {}
    for name, reply in replies.items():
        if isinstance(reply, Refused):
            raise ToolError(f"The server's request was refused: {reply.reason}")
        given[name] = reply
    return RoundOfAnswers.of(given, state)


def _sampled(ctx: BranchContext, request: SampleRequest) -> Coroutine[Any, Any, Reply | Refused]:
    options: dict[str, Any] = {name: getattr(request, name) for name in SampleRequest.model_fields}
    sampling = ctx.sample(**options)

    async def reply() -> Reply | Refused:
        try:
            sampled = await sampling
        except REFUSALS as error:
            return Refused(reason=str(error))
        return SampleReply(
            content=sampled.exchange[-1].content,
            model=sampled.model,
            stop_reason=sampled.stop_reason,
            usage=sampled.usage,
        )

    return reply()


def _elicited(question: Question) -> Coroutine[Any, Any, Reply]:
    call = current_call()
    scope = call.scheduler.scope()
    step_id = call.cursor.new_id(scope, "elicit")
    pinned = fingerprint(question.model_dump(mode="json"))

    async def reply() -> Reply:
        try:
            entry = await call.operations.ask(scope, step_id, "elicit", pinned, lambda: question)
        except StepFailed:
            return ElicitReply(action="cancel")
        return ElicitReply.model_validate(entry.value)

    return reply()


class Reports(Absent):
    def __init__(self, here: ToolUse, most: int) -> None:
        self._here = here
        self._most = most
        self._number = 0
        self._context = copy_context()
        self.capabilities = here.timeline.dependencies.capabilities

    async def log(self, level: LogLevel, message: str, /) -> None:
        await self._emit(Notice(message, level))

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        await self._emit(Notice(message, None, progress, total))

    async def _emit(self, notice: Notice) -> None:
        here, most = self._here, self._most
        self._number += 1
        if self._number == most + 1:
            notice = Notice(f"Only {most} lines of the tool's reports are shown.", "warning")
        if self._number <= most + 1:
            event = ToolNoticed(here.caller.id, here.block, notice)
            await asyncio.create_task(here.emit(event), context=self._context.copy())


class RemoteTool(CalledTool):
    is_versioned = False

    def __init__(self, tool: ServerTool) -> None:
        super().__init__(tool)
        self._remote = tool
        self.listed = tool.listed
        self.on_error = _failed

    async def use(self, here: ToolUse) -> Outcome | Waiting:
        outcome = await super().use(here)
        timeout = here.timeline.dependencies.tool_limits.timeout
        if isinstance(outcome, Outcome) or not outcome.asks or timeout is None:
            return outcome
        return replace(outcome, until=Journal.loads(outcome.state).started + timeout)

    def _job(self, here: ToolUse) -> Job:
        return replace(super()._job(here), tool=self._remote.used(here))

    def _outcome(self, value: object) -> Outcome:
        result = RemoteResult.model_validate(value)
        return Outcome(text_of(result.blocks), result.is_error, result.blocks)


def _failed(tool: str, error: Exception) -> Outcome:
    if isinstance(error, BranchTimeoutError):
        error = ToolError(
            f"{tool!r} has not ended within {error.timeout:g} s, and was cancelled. Its effects"
            " until then are unknown."
        )
    return failed(tool, error)
