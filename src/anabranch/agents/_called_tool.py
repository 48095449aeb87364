"""An anabranch tool as a tool of an agent: its call runs round by round, and waits in the store.

Between rounds no task is alive: the questions become nodes of the tree, with the call's journal.
The reaper undoes the effects of a call whose question gets no answer in time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from anabranch._aio import pause, run_shielded
from anabranch._asking import Host
from anabranch._durable import OPEN, CallRecord, CallService, Job, Reaper
from anabranch._engine import Answer, Ask, Journal, Notice, wakes_at
from anabranch._telemetry import call_in_logs
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.agents._agent_tools import ELSEWHERE, Outcome, ToolUse, UsableTool, Waiting, failed
from anabranch.agents._batch_line import AnsweredRound
from anabranch.agents._events import ToolBranched, ToolNoticed
from anabranch.agents._tool_questions import dump_ask, load_ask
from anabranch.agents._working_branch import REFUSALS
from anabranch.errors import (
    InvalidArgumentsError,
    InvalidTokenError,
    OtherVersionError,
    ToolError,
    UnknownCallError,
)
from anabranch.messages import SampleReply, SampleRequest, ToolSpec, text_of
from anabranch.tool import Runtime, Tool, new_journal
from anabranch.tree import Node, Path, Thread, TreeStore, project, result_blocks

logger: logging.Logger = logging.getLogger("anabranch.agents")

LONGEST_WAIT = 30 * 86_400.0
"""Seconds after which a call that waits for a worker, and for no user, expires."""

ENDED_AT_ONCE = 100
"""Maximum calls that are ended at the same time."""


class CalledTool(UsableTool):
    """Calls an anabranch tool; ``is_versioned``: only the code that started a call can continue it."""

    is_versioned: bool = True

    def __init__(
        self, tool: Tool[Any], *, concurrent_elicits: bool = True, elicits_in_branches: bool = True
    ) -> None:
        self.tool = tool
        self._concurrent = concurrent_elicits
        self._in_branches = elicits_in_branches
        self.on_error: Callable[[str, Exception], Outcome] = failed
        self.spec: ToolSpec = ToolSpec(
            name=tool.name, description=tool.description, input_schema=tool.input_schema
        )

    async def use(self, here: ToolUse) -> Outcome | Waiting:
        """Run the call's next round; an interruption undoes the call unless the turns are suspended.

        With a ``user``, the method waits while the call sleeps; otherwise it returns ``Waiting``.
        """
        dependencies = here.timeline.dependencies
        try:
            job = self._job(here)
        except InvalidArgumentsError:
            await check_version(here)
            raise
        above = Path(here.path.nodes[:-1], here.path.results)
        runtime = runtime_at(dependencies, here.timeline.thread, above)
        runtime = runtime if self.is_versioned else replace(runtime, version="")
        service = CallService(runtime, dependencies.calls)
        journal, answers = _opened(here)
        with call_in_logs(journal.line):
            try:
                return await self._resume(here, service, job, journal, answers)
            except ELSEWHERE:
                raise
            except Exception as error:  # noqa: BLE001 - on_error logs the error
                return self.on_error(self.name, error)

    async def _resume(
        self,
        here: ToolUse,
        service: CallService,
        job: Job,
        journal: Journal,
        answers: Mapping[str, Answer],
    ) -> Outcome | Waiting:
        dependencies, clock = here.timeline.dependencies, service.runtime.clock
        if here.continuation.is_stopped:
            return await self._undone(here, journal)
        is_left_alone = dependencies.user is None
        try:
            outcome = await service.run_round(job, journal, answers, _RESUMABLE)
            while isinstance(outcome, Waiting) and not outcome.asks:
                journal = Journal.loads(outcome.state)
                until = wakes_at(journal) or 0.0
                if is_left_alone and until > clock.now():
                    if here.continuation.is_over:
                        return await self._undone(here, journal)
                    await keep_open(dependencies, journal.line, until)
                    return Waiting(until=until)
                await pause(clock, until - clock.now())
                outcome = await service.run_round(job, journal, {}, _RESUMABLE)
        except InvalidTokenError as error:
            raise ToolError(
                "This call cannot continue: it has ended, or its effects before the question are"
                " undone. Call the tool again."
            ) from error
        except asyncio.CancelledError:
            if not dependencies.suspension.begun:
                await run_shielded(self._interrupt(here, journal))
            raise
        if isinstance(outcome, Waiting):
            asked = replace(outcome, call=journal.line)
            if dependencies.user is not None:
                return asked
            return replace(asked, until=wakes_at(Journal.loads(asked.state)))
        return self._outcome(outcome.value)

    def _outcome(self, value: object) -> Outcome:
        blocks = result_blocks(value)
        return Outcome(text_of(blocks), blocks=blocks)

    def _job(self, here: ToolUse) -> Job:
        async def deliver(notice: Notice) -> None:
            await here.emit(ToolNoticed(here.caller.id, here.block, notice))

        async def watch(path: str, is_open: bool) -> None:  # noqa: FBT001 - a callback
            await here.emit(ToolBranched(here.caller.id, here.block, path, is_open))

        dependencies, thread = here.timeline.dependencies, here.timeline.thread
        agents, suspension = dependencies.capabilities, dependencies.suspension
        owner = thread.owner or ""
        offered = replace(
            agents,
            concurrent_elicits=agents.concurrent_elicits and self._concurrent,
            elicits_in_branches=agents.elicits_in_branches and self._in_branches,
        )
        return Job(
            self.tool,
            self.tool.validate(here.block.input),
            Host(offered, _TurnModel(here), own=offered, principal=owner),
            deliver,
            owner,
            thread.id,
            here.caller.id,
            lambda: not suspension.begun,
            watch,
            wakes=True,
            begins_lines=True,
            answers_first=here.answered is not None and here.answered.in_time,
        )

    async def _interrupt(self, here: ToolUse, journal: Journal) -> None:
        try:
            await here.record(await self._undone(here, journal))
        except Exception:  # the interruption is about to be raised, and must not be replaced
            logger.exception("the interrupted tool %r could not be ended", self.name)

    async def _undone(self, here: ToolUse, journal: Journal) -> Outcome:
        dependencies, store = here.timeline.dependencies, here.timeline.dependencies.calls.store
        is_ended = await reaper_of(dependencies, {self.name: self.tool}).end(journal.line)
        if not is_ended and here.continuation.is_over:
            # A dead process, or one that does not know of the stop, still has the lease. The call's
            # time is over, so the next reaper ends the call.
            record = await store.find(journal.line)
            if record is not None and record.state.is_open:
                await store.hasten(journal.line, dependencies.clock.now(), record.state)
        return Outcome.interrupted()


async def check_version(here: ToolUse) -> None:
    dependencies = here.timeline.dependencies
    line = _call_id(here) if here.answered is None else _loaded(here.answered).line
    record = await dependencies.calls.store.find(line)
    if record is None or not record.state.is_open:
        return
    if Runtime(version=dependencies.version).is_other(record.version):
        raise OtherVersionError(line, record.version)


def _opened(here: ToolUse) -> tuple[Journal, Mapping[str, Answer]]:
    answered = here.answered
    if answered is None:
        runtime = Runtime(clock=here.timeline.dependencies.clock)
        return new_journal(runtime, _call_id(here)), {}
    return _loaded(answered), answered.answers


def _loaded(answered: AnsweredRound) -> Journal:
    try:
        return Journal.loads(answered.state)
    except ValueError as problem:
        raise ToolError(
            f"The server cannot continue this call: {problem}. Call the tool again."
        ) from None


class _Resumable:
    kind = "agent"

    def make(self, asks: tuple[Ask, ...], state: str) -> Waiting:
        return Waiting(asks, state)

    def dump(self, reply: Waiting) -> dict[str, Any]:
        return {"asks": [dump_ask(ask) for ask in reply.asks]}

    def load(self, stored: dict[str, Any], state: str) -> Waiting:
        return Waiting(tuple(map(load_ask, stored["asks"])), state)


_RESUMABLE = _Resumable()


@dataclass(frozen=True, slots=True)
class _TurnModel:
    """The agent's model, which answers a tool's samples from the turn's account, not the call's."""

    here: ToolUse

    async def sample(self, request: SampleRequest) -> SampleReply:
        try:
            return await self.here.timeline.sample(request, total=self.here.side_usage)
        except REFUSALS as refusal:  # the call's record keeps the message of a ToolError
            raise ToolError(str(refusal)) from None


def _call_id(here: ToolUse) -> str:
    place = f"{here.caller.id}/{here.block.id}"
    return f"call_{blake2b(place.encode('utf-8', 'surrogatepass'), digest_size=9).hexdigest()}"


def runtime_at(dependencies: AgentDependencies, thread: Thread | None, above: Path) -> Runtime:
    return replace(
        _conversation_at(thread, above),
        limits=dependencies.tool_limits,
        clock=dependencies.clock,
        version=dependencies.version,
    )


async def runtime_of(store: TreeStore, record: CallRecord) -> Runtime | None:
    if not record.node:
        return Runtime()
    caller = await store.node(record.node)
    return None if caller is None else _conversation_at(*await _above(store, caller))


async def _above(store: TreeStore, caller: Node) -> tuple[Thread | None, Path]:
    path = await store.path(caller.parent_id or caller.id)
    return await store.thread(caller.thread_id), path


def _conversation_at(thread: Thread | None, above: Path) -> Runtime:
    return Runtime(
        parent_messages=project(above.nodes, above.results),
        parent_system_prompt=None if thread is None else thread.system_prompt,
    )


async def keep_open(
    dependencies: AgentDependencies, call: str, until: float = math.inf, *, now: float = -math.inf
) -> bool:
    """Extend a call's deadline; return whether the call is open, as is a call that no store has.

    A call whose deadline is ``now`` or earlier is over. A reaper or a stop may end it meanwhile: the
    first change of the call's row decides.
    """
    begins = until if until < math.inf else dependencies.clock.now()
    store, deadline = dependencies.calls.store, begins + LONGEST_WAIT
    try:
        return await store.answer(call, {}, by="", deadline=deadline, now=now) is not None
    except UnknownCallError:
        return True


async def end_calls(
    dependencies: AgentDependencies, tools: dict[str, Tool[Any]]
) -> list[CallRecord]:
    reaper, store = reaper_of(dependencies, tools), dependencies.calls.store
    left, last = list[CallRecord](), None
    while True:
        page = await store.calls(ENDED_AT_ONCE, states=OPEN, after=last)
        ours = [each for each in page if each.tool in tools]
        await asyncio.gather(*(reaper.end(each.call_id) for each in ours))
        known = [await store.find(each.call_id) for each in page]
        left += [each for each in known if each is not None and each.state.is_open]
        if len(page) < ENDED_AT_ONCE:
            break
        last = page[-1]
    return left


def reaper_of(dependencies: AgentDependencies, tools: dict[str, Tool[Any]]) -> Reaper:
    alone = Runtime(clock=dependencies.clock, version=dependencies.version)
    service = CallService(alone, dependencies.calls)

    async def runtime_for(record: CallRecord) -> Runtime:
        caller = await dependencies.store.node(record.node)
        if caller is None:
            return alone
        return runtime_at(dependencies, *await _above(dependencies.store, caller))

    return Reaper(service, tools, runtime_of=runtime_for)
