"""One call of a tool of an MCP server, which may wait for answers longer than a turn lasts.

In the modern era, a server's question ends the request. The agent stores the server's state with
the questions, and the next request sends the state, from any process. In the handshake era, the
server waits for the answer: this process parks the call, and the call ends with the process.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextvars import copy_context
from typing import Any, Final

import mcp_types as types

from anabranch._aio import cancel_and_wait
from anabranch._asking import Absent, AnswerError
from anabranch._engine import Answer, Ask, Notice
from anabranch.agents._agent_tools import Asked, Outcome, ToolUse
from anabranch.agents._events import ToolNoticed
from anabranch.agents._ports import Question
from anabranch.agents._remote_state import (
    CallState,
    RemoteLimits,
    check_question,
    checked_result,
    reply_in,
    shown,
)
from anabranch.agents._remote_values import outcome_of, without_foreign_nulls
from anabranch.agents._working_branch import REFUSALS
from anabranch.errors import ToolError
from anabranch.mcp._client import MAX_ROUNDS
from anabranch.mcp._eras import Response, RoundOfAnswers, answer_others, questions_of
from anabranch.mcp._tool_server import ToolServer
from anabranch.messages import ElicitReply, LogLevel, SampleReply, SampleRequest

MOST_PARKED: Final = 100
"""Calls of the handshake era that wait for a user; beyond that, the oldest is cancelled."""


class ParkedCalls:
    """The calls that wait for a user in this process, by name."""

    def __init__(self) -> None:
        self._calls: dict[str, RemoteCall] = {}

    async def park(self, call: RemoteCall) -> str:
        """Hold ``call`` until it is taken, and return its name."""
        name = str(uuid.uuid4())
        self._calls[name] = call
        if len(self._calls) > MOST_PARKED:
            await self._calls.pop(next(iter(self._calls))).cancel()
        return name

    def take(self, name: str) -> RemoteCall | None:
        """Take the parked call of that name, and return it."""
        return self._calls.pop(name, None)

    async def aclose(self) -> None:
        """Cancel all calls."""
        while self._calls:
            await self._calls.popitem()[1].cancel()


class RemoteCall(Absent):
    """A call of a tool of ``server``; as an answerer, it receives the server's questions meanwhile.

    Args:
        server: runs the tool.
        tool: as the server lists it.
        key: the call's idempotency key.
        here: the use of the tool.
        limits: of the call.
        before: the state that the call continues from, with answers; ``None`` for a new call.

    Attributes:
        begun: when it began.
    """

    def __init__(
        self,
        server: ToolServer,
        tool: types.Tool,
        key: str,
        here: ToolUse,
        limits: RemoteLimits,
        before: tuple[CallState, RoundOfAnswers] | None = None,
    ) -> None:
        state, answers = before or (CallState(server="", tool=""), None)
        self.begun: float = state.begun or here.timeline.dependencies.clock.now()
        self._limits = limits
        self._samples = state.samples
        self._notices = 0
        self._server = server
        self._listed = tool
        self._tool = tool.name
        self._key = key
        self._here = here
        self._context = copy_context()
        self._attached = asyncio.Event()
        self._asked: dict[str, tuple[Ask, asyncio.Future[ElicitReply]]] = {}
        self._asking = asyncio.Event()
        self._task = asyncio.create_task(self._drive(here, answers))
        self._task.add_done_callback(_read)

    async def cancel(self) -> None:
        """End the call, here and at the server."""
        await cancel_and_wait([self._task])

    async def go_on(
        self, here: ToolUse, answers: Mapping[str, Answer], parked: ParkedCalls
    ) -> Outcome | Asked:
        """Return the end of the call, or its next questions.

        Args:
            here: the use of the tool, which may be that of a later turn.
            answers: to what the server waits for.
            parked: takes the call if it waits for answers.
        """
        self._here, self._context = here, copy_context()
        for step_id, answer in answers.items():
            _, answered = self._asked.pop(step_id, (None, None))
            if answered is not None and not answered.done():
                answered.set_result(reply_in(answer))
        if not self._asked:
            self._asking.clear()
        self._attached.set()
        asking = asyncio.create_task(self._asking.wait())
        try:
            await asyncio.wait({self._task, asking}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                return self._task.result()
            asks = tuple(ask for ask, _ in self._asked.values())
            name = await parked.park(self)
            return Asked(asks, self._state(parked=name))
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            self._attached.clear()
            await cancel_and_wait([asking])

    async def _drive(self, here: ToolUse, answers: RoundOfAnswers | None) -> Outcome | Asked:
        arguments = without_foreign_nulls(self._listed.input_schema, here.block.input)
        for _ in range(MAX_ROUNDS):
            result = await self._server.call(
                self._tool,
                arguments,
                self,
                owner=here.timeline.thread.id,
                key=self._key,
                answers=answers,
            )
            if isinstance(result, types.CallToolResult):
                return checked_result(
                    self._limits, self._tool, outcome_of(result, self._listed.output_schema)
                )
            self._check_asked(len(result.model_dump_json()), len(result.input_requests or ()))
            questions = questions_of(result)
            responses = await answer_others(result, self)
            if asks := self._asks(questions, responses):
                state = self._state(request_state=result.request_state, responses=responses)
                return Asked(asks, state)
            answers = RoundOfAnswers(responses, result.request_state)
        raise ToolError(f"The tool {self._tool!r} has asked in more than {MAX_ROUNDS} rounds.")

    def _state(self, **waits: Any) -> str:  # noqa: ANN401 - fields of the state
        """Return the state from which the call is resumed."""
        counted: dict[str, Any] = {"begun": self.begun, "samples": self._samples}
        state = CallState(server=self._server.place, tool=self._tool, **counted, **waits)
        return state.model_dump_json(by_alias=True, exclude_none=True)

    def _check_asked(self, size: int, number: int = 1) -> None:
        check_question(self._limits, self._tool, size, number)

    def _asks(
        self, questions: Mapping[str, Question], responses: dict[str, Response]
    ) -> tuple[Ask, ...]:
        """Return the questions to the user; decline questions that the user cannot be asked."""
        asks: list[Ask] = []
        for key, question in questions.items():
            if (asked := self._shown(question)) is not None:
                asks.append(Ask(key, "elicit", asked, ""))
            else:
                responses[key] = types.ElicitResult(action="decline")
        return tuple(asks)

    def _shown(self, question: Question) -> Question | None:
        return shown(question, self._here.timeline.dependencies.capabilities)

    # -- what the server asks and reports while it runs the tool -----------------------------

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Let the agent's model answer as soon as a turn continues the call.

        Raises:
            AnswerError: if a limit of the call, or of the turn, is used up.
        """
        del step_id
        await self._attached.wait()
        self._samples += 1
        if self._samples > (most := self._limits.max_samples):
            raise AnswerError(f"one call may ask the model {most} times, and this one has")
        try:
            self._check_asked(len(request.model_dump_json()))
            return await self._here.sample(request)
        except (*REFUSALS, ToolError) as refusal:
            raise AnswerError(str(refusal)) from None

    async def elicit(self, request: Question, /, *, step_id: str) -> ElicitReply:
        """Wait until the user has answered, in this turn or a later one.

        Raises:
            AnswerError: if the question cannot be shown, or is too large.
        """
        try:
            self._check_asked(len(request.model_dump_json()), len(self._asked) + 1)
            asked = self._shown(request)
        except ToolError as problem:
            raise AnswerError(str(problem)) from None
        if asked is None:
            return ElicitReply(action="decline")
        name = f"{step_id}#{uuid.uuid4()}"  # servers may give the same name twice
        answered: asyncio.Future[ElicitReply] = asyncio.get_running_loop().create_future()
        self._asked[name] = Ask(name, "elicit", asked, ""), answered
        self._asking.set()
        try:
            return await answered
        finally:
            self._asked.pop(name, None)
            if not self._asked:
                self._asking.clear()

    async def log(self, level: LogLevel, message: str, /) -> None:
        """Send a log message to the agent's listener."""
        await self._emit(Notice(message, level))

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Send a progress message to the agent's listener."""
        await self._emit(Notice(message, None, progress, total))

    async def _emit(self, notice: Notice) -> None:
        """Emit in the running turn; between turns, nobody listens."""
        here, most = self._here, self._limits.max_notices
        self._notices += 1
        if self._notices == most + 1:
            notice = Notice(f"Of what the tool reports, {most} lines are shown.", "warning")
        if self._attached.is_set() and self._notices <= most + 1:
            event = ToolNoticed(here.caller.id, here.block, notice)
            await asyncio.create_task(here.emit(event), context=self._context.copy())


def _read(task: asyncio.Task[Outcome | Asked]) -> None:
    """Retrieve the error of a call that ended between turns; the next turn raises it."""
    if not task.cancelled():
        task.exception()
