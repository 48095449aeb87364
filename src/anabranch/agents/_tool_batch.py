"""A tool batch: the tools that one reply of the model calls, run at the same time.

If a tool opens branches, each result is a placeholder until the next message, so the requests of
the branches share their beginning.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from anabranch._aio import all_or_first_error
from anabranch._asking import Answerer, refusal
from anabranch._engine import Notice
from anabranch.agents._agent_tools import (
    ELSEWHERE,
    Continuation,
    Outcome,
    ToolUse,
    UsableTool,
    Waiting,
    failed,
)
from anabranch.agents._batch_line import AskedRound, BatchLine
from anabranch.agents._called_tool import CalledTool, check_version
from anabranch.agents._events import ToolEnded, ToolNoticed, ToolStarted, ToolSuspended
from anabranch.agents._line_writer import LineWriter
from anabranch.agents._timeline import Timeline
from anabranch.agents._tool_questions import LEFT, TIME_OVER, answer_live
from anabranch.agents._tool_set import front_end_outcome
from anabranch.agents._turn_limits import SideUsage
from anabranch.errors import AnabranchError, OtherVersionError
from anabranch.messages import CUT, TextBlock, ToolUseBlock
from anabranch.tree import NO_RESULT_CONTENT, Node, Result


class ToolBatch:
    def __init__(
        self,
        timeline: Timeline,
        tools: Mapping[str, UsableTool],
        writer: LineWriter,
        continuation: Continuation,
    ) -> None:
        self._timeline = timeline
        self._tools = tools
        self._writer = writer
        self._continuation = continuation
        self._asking = asyncio.Lock()
        self._uses = writer.line.unfinished
        self._new = {use.id for use in self._uses if not writer.line.has_begun(use.id)}
        used = (tools[use.name] for use in self._uses if use.name in tools)
        self._placeholder = next((tool.placeholder for tool in used if tool.placeholder), None)
        self._results: dict[str, Result] = {}
        self._last: list[ToolEnded] = []  # without the node of the results that stores them
        self._suspended: set[str] = set()
        self._elsewhere: AnabranchError | None = None
        self._side_usage = SideUsage()

    @property
    def _line(self) -> BatchLine:
        return self._writer.line

    async def run(self) -> Node:
        """Run the unfinished tools; return the ``results`` node, or the line's last node if a tool waits.

        An error of :data:`ELSEWHERE` is raised after the other tools have run as far as possible.
        """
        await self._store_placeholders()
        while True:
            await all_or_first_error([partial(self._use, use) for use in self._unfinished])
            if self._elsewhere is not None:
                raise self._elsewhere
            if not self._unfinished:
                self._placeholder = None
                ended = await self._writer.finish(self._shown(), self._side_usage, self._last)
                return ended or self._line.last
            if not self._writer.is_current:  # other processes may have stored answers meanwhile
                await self._writer.refresh()
            if all(self._waits(use) for use in self._unfinished):
                return self._line.last

    @property
    def _unfinished(self) -> list[ToolUseBlock]:
        return [use for use in self._uses if not self._is_done(use)]

    def _waits(self, use: ToolUseBlock) -> bool:
        return self._line.is_waiting(use.id) or use.id in self._suspended

    def _is_done(self, use: ToolUseBlock) -> bool:
        return use.id in self._results or self._line.has_returned(use.id)

    async def _store_placeholders(self) -> None:
        """Store results that say, until the tools return, that they were interrupted.

        So a crash leaves a thread in which each tool use has a result.
        """
        if self._placeholder is not None:
            caller, shown, none = self._line.caller.id, _text(self._placeholder), NO_RESULT_CONTENT
            missing = [use.id for use in self._uses if self._line.result(use.id) is None]
            results = [Result(caller, each, shown, is_error=True, pending=none) for each in missing]
            await self._writer.record(results)

    # -- one tool ----------------------------------------------------------------------------

    async def _use(self, use: ToolUseBlock) -> None:
        if use.id in self._new:
            self._new.remove(use.id)
            await self._timeline.dependencies.listener(ToolStarted(self._line.caller.id, use))
        while not self._is_done(use):
            round_ = self._line.rounds.get(use.id)
            if round_ is not None and round_.unanswered:
                if not await self._answer(use, round_):
                    return
                continue
            try:
                outcome = self._in_time(await self._outcome(use, round_))
                self._writer.is_current = False  # the answers took their time
            except ELSEWHERE as other:
                self._elsewhere = other
                if isinstance(other, OtherVersionError):
                    await self._notice(use, other)
                return
            if isinstance(outcome, Outcome):
                await self._end(use, outcome)
            elif outcome.asks:
                await self._writer.ask(use.id, outcome, round_, self._side_usage)
            else:
                self._suspended.add(use.id)
                if outcome.until is not None:
                    slept = ToolSuspended(self._line.caller.id, use, outcome.until)
                    await self._timeline.dependencies.listener(slept)
                return

    async def _answer(self, use: ToolUseBlock, round_: AskedRound) -> bool:
        """Get the answers to a round, or mark late questions; return false while the tool waits."""
        dependencies, user = self._timeline.dependencies, self._continuation.user
        is_late = dependencies.clock.now() >= round_.until and not self._continuation.is_over
        is_asked = self._continuation.is_left or not round_.is_in_front_end
        if user is not None and is_asked and not is_late:
            await self._ask(user, round_)
            return True
        if round_.until == math.inf:
            return False
        if not is_late:
            suspended = ToolSuspended(self._line.caller.id, use, round_.until, asks=True)
            await dependencies.listener(suspended)
            return False
        working = self._timeline.branch_of_folding
        if working is not None and not working.seconds_left:
            return False  # the end of the branch ends the tool
        for question in round_.unanswered:
            await self._writer.answer(question, TIME_OVER)
        return True

    async def _ask(self, user: Answerer, round_: AskedRound) -> None:
        async with self._asking:
            for question in round_.questions:
                if question.id not in self._line.answers:
                    is_left = self._continuation.is_left
                    given = LEFT if is_left else await answer_live(user, question)
                    await self._writer.answer(question, given)

    async def _outcome(self, use: ToolUseBlock, round_: AskedRound | None) -> Outcome | Waiting:
        if round_ is not None and round_.is_in_front_end:
            return front_end_outcome(round_)
        tool, here = self._tools.get(use.name), self._here(use, round_)
        try:
            if tool is None:
                await check_version(here)
                known = ", ".join(sorted(self._tools)) or "none"
                return Outcome(f"There is no tool {use.name!r}. Tools: {known}.", is_error=True)
            if (unusable := _unusable(self._line.caller, use)) is not None:
                return Outcome(unusable, is_error=True)
            has_calls = isinstance(tool, CalledTool) or tool.placeholder is not None
            if self._continuation.is_stopped and not has_calls:
                return Outcome.interrupted()  # the tool has nothing to undo
            return await tool.use(here)
        except ELSEWHERE:
            raise
        except Exception as error:  # noqa: BLE001 - logged
            # Each tool use needs a result, or no provider accepts the thread.
            return failed(use.name, error)

    def _in_time(self, outcome: Outcome | Waiting) -> Outcome | Waiting:
        working = self._timeline.branch_of_folding
        if working is None or isinstance(outcome, Outcome) or outcome == Waiting():
            return outcome  # a tool that waits for branches ends with its branches
        until = math.inf if outcome.until is None else outcome.until
        deadline = self._timeline.dependencies.clock.now() + working.seconds_left
        return replace(outcome, until=min(until, deadline))

    async def _notice(self, use: ToolUseBlock, other: OtherVersionError) -> None:
        text = f"This waits for a process with version {other.version!r} of the tools' code."
        notice = Notice(text, "warning", id=f"{other.call} waits for {other.version}")
        await self._timeline.dependencies.listener(ToolNoticed(self._line.caller.id, use, notice))

    def _here(self, use: ToolUseBlock, round_: AskedRound | None) -> ToolUse:
        return ToolUse(
            use,
            self._line.caller,
            self._timeline,
            self._tools,
            None if round_ is None else round_.answered(),
            self._side_usage.of(use.id),
            partial(self._record, use),
            self._continuation,
            self._line.path_to_caller,
        )

    # -- results -----------------------------------------------------------------------------

    async def _end(self, use: ToolUseBlock, outcome: Outcome) -> None:
        ended = await self._ended(use, outcome)
        if self._unfinished or self._placeholder is not None:
            await self._writer.record([ended.result], ended)
        else:  # one write stores the last result and the node of all results
            self._last.append(ended)

    async def _record(self, use: ToolUseBlock, outcome: Outcome) -> None:
        ended = await self._ended(use, outcome)
        await self._writer.record([ended.result], ended)

    async def _ended(self, use: ToolUseBlock, outcome: Outcome) -> ToolEnded:
        working = self._timeline.branch_of_folding
        if working is not None and not outcome.is_interrupted:
            warning = await working.warning()
            outcome = outcome if warning is None else outcome.with_warning(warning)
        outcome = replace(outcome, blocks=await self._timeline.stored(outcome.blocks))
        result = self._results[use.id] = self._result(use.id, outcome)
        round_ = self._line.rounds.get(use.id)
        return ToolEnded(use, result, in_front_end=round_ is not None and round_.is_returned)

    def _result(self, use_id: str, outcome: Outcome) -> Result:
        holder, content = self._line.holder(use_id), outcome.blocks or _text(outcome.text)
        # After an interruption, no branch is left that sees the placeholder.
        is_last = outcome.is_interrupted or holder.id != self._line.caller.id
        if self._placeholder is None or is_last:
            return Result(holder.id, use_id, content, outcome.is_error)
        shown = _text(self._placeholder)
        return Result(holder.id, use_id, shown, outcome.is_error, pending=content)

    def _shown(self) -> list[Result]:
        return [
            Result(each.node_id, each.tool_use_id, each.pending or each.content, each.is_error)
            for each in self._results.values()
        ]


def _text(text: str) -> tuple[TextBlock, ...]:
    return (TextBlock(text=text),)


def _unusable(caller: Node, use: ToolUseBlock) -> str | None:
    # The model may have been cut off before the input, which then is empty.
    if caller.data.get("stop_reason") == "maxTokens" and caller.content[-1] == use:
        return CUT
    return None if use.malformed is None else refusal(use.name, use.malformed)
