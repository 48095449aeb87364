"""One conversation as it is led over the web: one turn at a time, watched by any number of pages.

A turn outlives the page that began it, and ends at the questions of its tools, which are in the store
before anyone is shown them. Their answers begin another turn, in this process or in another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from enum import Enum
from itertools import takewhile
from typing import Literal, TypeAlias

from pydantic import ValidationError

from anabranch.agents import Agent, QuestionAnsweredError, Reply
from anabranch.chat._session.typed_values import read_arguments
from anabranch.chat._web.live_turn import LiveTurn, current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.pending_questions import FieldError, Questions, as_interrupt, read_reply
from anabranch.chat._web.thread_lease import BusyError, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.elicitation import describe
from anabranch.errors import AnabranchError, StoreError, ToolError
from anabranch.messages import ElicitReply, ToolUseBlock
from anabranch.models import ModelError
from anabranch.tree import Node

__all__ = ["HEAD", "AnswerRefusedError", "BusyError", "Conversation", "Place"]


class Head(Enum):
    """Where the conversation is: below the last node that was added to it."""

    HEAD = "head"


HEAD = Head.HEAD
Place: TypeAlias = str | Literal[Head.HEAD] | None
"""Where a message goes: below a node, at the beginning, or at the head."""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


ANSWERED = "The question was answered differently."
OPEN = "The question is still open: answer it in its conversation."
UNDONE = "What this call had done is undone: it cannot be continued."
ASIDE = {"question", "answer"}
"""Kinds of nodes between one that calls tools and their results."""


class AnswerRefusedError(Exception):
    """An answer cannot be taken: it does not fit, or the question does not wait for it.

    Attributes:
        reason: ``unknown``, ``answered``, ``expired`` or ``invalid``; where another answer was to
            be given, also ``open``, for it has none yet, or ``closed``, for its call does not go on
            from there.
        errors: what is wrong with which field.
    """

    def __init__(self, reason: str, message: str, errors: list[FieldError] | None = None) -> None:
        self.reason = reason
        self.errors: list[FieldError] = errors or []
        super().__init__(message)


class Conversation:
    """The conversation in one thread.

    Attributes:
        log: what happens in it.
    """

    def __init__(
        self, agent: Agent, questions: Questions, thread_id: str, writer: LogWriter
    ) -> None:
        self.thread_id = thread_id
        self.log: ThreadLog = ThreadLog(writer, thread_id)
        self._right = ThreadLease(writer.events, self.log, thread_id, writer.clock)
        self._agent = agent
        self._questions = questions
        self._turn: LiveTurn | None = None
        self._lock = asyncio.Lock()

    async def is_running(self) -> bool:
        """Whether a turn works in it, in any process: one that waits at a question does not."""
        return await self._right.holder() is not None

    async def position(self) -> int:
        """Return the number of the event after which a reader of the tree goes on.

        It is the last one; or, while a run is in progress, the one before that run, whose events
        are not all in the tree.
        """
        run_id = await self._right.holder()
        begun = None if run_id is None else await self.log.begun(run_id)
        return await self.log.last() if begun is None else begun

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens in it."""
        return self._turn is None and self.log.is_written and not self._lock.locked()

    async def say(self, text: str, run_id: str, *, at: Place = HEAD) -> int:
        """Begin a turn with a message of the person; return after which event it begins.

        The message follows the node ``at``; ``None`` makes it another beginning of the thread. The
        same run again is the same message: its events are sent once more.

        Open questions are left first: their tools read that they were cancelled. A message
        ``/TOOL name=value …`` calls a tool without the model.

        Raises:
            BusyError: a turn is running.
            ToolError: the message is blank, or ``at`` is no node of the thread.
            SessionError: the arguments of a tool cannot be read.
            InvalidArgumentsError: they do not fit.
        """
        if not text.strip():
            raise ToolError("A message must not be blank.")
        if at is not HEAD and at is not None:
            await self._check_node(at)
        work = self._called(text) or self._agent.go_on
        async with self._lock:
            if self._turn is not None and (begun := await self.log.begun(run_id)) is not None:
                return begun
            return await self._begin(run_id, lambda: self._said(text.strip(), at, work))

    async def answer(self, replies: Mapping[str, ElicitReply], run_id: str) -> int | None:
        """Answer questions, all or none; return after which event their tools go on.

        A turn that still runs, of another tool beside them, takes the answers up. If the questions
        had these same answers before, nothing happens: the same run again is sent its events once
        more, and another run has none, ``None``.

        Raises:
            AnswerRefusedError: one cannot be answered, or not like this.
        """
        async with self._lock:
            taken = {each: await self._taken(each, reply) for each, reply in replies.items()}
            new = [(each, reply) for each, reply in taken.items() if reply is not None]
            if not new:
                return await self.log.begun(run_id)
            running = self._turn
            turn, after = running or self._new_turn(), await self.log.last()
            with suppress(BusyError):  # the process that runs the turn takes the answers up
                after = after if running else await turn.begin_run(run_id)
            current_turn.set(turn)
            try:
                nodes = [await self._agent.add_answer(*each) for each in new]
            except QuestionAnsweredError:  # just now, by another process
                await turn.fail(ANSWERED)
                raise AnswerRefusedError("answered", ANSWERED) from None
            if running is None and turn.is_running:
                ready = await self._agent.cut_off(self.thread_id)  # all that has answers now
                self._start(turn, lambda: self._go_on(ready or nodes[-1]))
            return after

    async def answer_differently(self, question_id: str, given: ElicitReply, run_id: str) -> None:
        """Answer a question again: another line begins there, and its tools go on.

        If a line with this answer has ended, nothing happens.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
            BusyError: a turn is running.
        """
        async with self._lock:
            node, reply = await self._read(question_id, given)
            if await self._agent.given_answer(node) is None:
                raise AnswerRefusedError("open", OPEN)
            await self._check(node, reply)
            if await self._questions.is_undone(node):
                raise AnswerRefusedError("closed", UNDONE)
            await self._begin(run_id, lambda: self._answered_again(question_id, reply))

    async def _answered_again(self, question_id: str, reply: Reply) -> Node:
        node = await self._agent.add_answer(question_id, reply, again=True)
        return node if node.kind == "results" else await self._go_on(node)

    async def resume(self) -> None:
        """Go on with a turn that was cut off while its tools ran, as by a crash."""
        async with self._lock:
            node = await self._agent.cut_off(self.thread_id)
            if node is not None and self._turn is None:
                await self._begin(f"run_{node.id}_resumed", lambda: self._go_on(node))

    async def finish_empty(self, run_id: str) -> int:
        """Report a run in which there is nothing to do; return after which event it begins."""
        turn = self._new_turn()
        after = await turn.begin_run(run_id)
        await turn.succeed()
        return after

    async def stop(self) -> bool:
        """Stop the running turn, and wait until it has ended; return whether there was one.

        It may run in another process.
        """
        turn = self._turn
        if turn is None or turn.task is None:
            return await self._right.ask_to_stop()
        turn.task.cancel()
        await asyncio.wait([turn.task])
        return True

    # -- turns -------------------------------------------------------------------------------

    async def _begin(self, run_id: str, work: Callable[[], Awaitable[Node]]) -> int:
        if self._turn is not None:
            raise BusyError
        turn = self._new_turn()
        after = await turn.begin_run(run_id)
        if turn.is_running:
            self._start(turn, work)
        return after

    def _start(self, turn: LiveTurn, work: Callable[[], Awaitable[Node]]) -> None:
        self._turn = turn
        turn.task = asyncio.create_task(self._run(turn, work))

    def _new_turn(self) -> LiveTurn:
        return LiveTurn(self.thread_id, self.log, self._right)

    async def _run(self, turn: LiveTurn, work: Callable[[], Awaitable[Node]]) -> None:
        current_turn.set(turn)
        try:
            last = await work()
            while (node := await self._end(turn, last)) is not None:
                last = await self._go_on(node)
        except asyncio.CancelledError:
            await turn.stop()
        except (AnabranchError, ModelError) as error:
            if isinstance(error, StoreError):
                logger.exception("a turn has failed")
            await turn.fail(str(error))
        except Exception:  # what is not meant for the page is for the log
            logger.exception("a turn has failed")
            await turn.fail("The run has failed; the server's log says why.")
        finally:
            self._turn = None

    async def _go_on(self, node: Node) -> Node:
        """Go on at a question or an answer; the model follows unless the person called the tool."""
        nodes = (await self._agent.store.path(node.id)).nodes
        turn = takewhile(lambda each: each.kind != "user", reversed(nodes))
        by_person = any(each.data.get("by") == "person" for each in turn)
        return await (self._agent.use_tools(node) if by_person else self._agent.go_on(node))

    async def _end(self, turn: LiveTurn, last: Node) -> Node | None:
        """Report that a turn has ended at ``last``; or return where to go on: answers have come."""
        if last.kind not in ASIDE and not last.tool_uses:
            await turn.succeed()
            return None
        async with self._lock:  # no answer is stored meanwhile that no one would take up
            node = await self._agent.cut_off(self.thread_id)
            if node is not None:
                return node
            waiting = await self._agent.open_questions(last)
            shown = [as_interrupt(await self._questions.shown(each)) for each in waiting]
            if shown:
                await turn.interrupt(shown)
            else:
                await turn.succeed()
            self._turn = None
            return None

    async def _said(self, text: str, at: Place, work: Callable[[Node], Awaitable[Node]]) -> Node:
        head = await self._agent.head(self.thread_id)
        last = None if head is None else await self._agent.store.node(head)
        is_open = last is not None and await self._agent.open_questions(last)
        if last is not None and (is_open or last.kind in ASIDE):
            head = (await self._agent.cancel_questions(last)).id
        if at is HEAD or (last is not None and at == last.id):
            at = head
        [message] = await self._agent.put(self.thread_id, [(at, text)])
        return await work(message)

    def _called(self, text: str) -> Callable[[Node], Awaitable[Node]] | None:
        """Return what follows a message that calls a tool, ``None`` for any other message."""
        name, _, values = text.strip().removeprefix("/").partition(" ")
        tool = self._agent.tools.get(name) if text.lstrip().startswith("/") else None
        if tool is None:
            return None
        arguments = read_arguments(tool, values.strip())

        async def work(message: Node) -> Node:
            agent = self._agent
            use = ToolUseBlock(id=agent.dependencies.naming("node"), name=name, input=arguments)
            node = agent.dependencies.node
            caller = node(self.thread_id, message.id, "assistant", (use,), data={"by": "person"})
            await agent.add([caller])
            return await (await agent.turn(caller)).use_tools(caller)

        return work

    async def _check_node(self, node_id: str) -> None:
        node = await self._agent.store.node(node_id)
        if node is None or node.thread_id != self.thread_id:
            raise ToolError(f"There is no node {node_id!r} in this conversation.")

    # -- questions ---------------------------------------------------------------------------

    async def _taken(self, question_id: str, given: ElicitReply) -> Reply | None:
        """Return an answer as it is stored, ``None`` if the question has been answered like this.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
        """
        node, reply = await self._read(question_id, given)
        before = await self._agent.given_answer(node)
        if before is not None:
            if before == reply:
                return None
            raise AnswerRefusedError("answered", ANSWERED)
        await self._check(node, reply)
        return reply

    async def _read(self, question_id: str, given: ElicitReply) -> tuple[Node, Reply]:
        """Return a question of the thread, and an answer to it as it is stored.

        Raises:
            AnswerRefusedError: there is no such question, or the answer is none of its kind.
        """
        node = await self._agent.store.node(question_id)
        if node is None or node.kind != "question" or node.thread_id != self.thread_id:
            raise AnswerRefusedError("unknown", f"There is no question {question_id!r} here.")
        try:
            return node, read_reply(node, given)
        except ValidationError as problem:
            raise AnswerRefusedError("invalid", f"{describe(problem)}.") from None

    async def _check(self, node: Node, reply: Reply) -> None:
        """Check that a question has time left, and that an answer fits it.

        Raises:
            AnswerRefusedError: one of these is not so.
        """
        try:
            expired = await self._questions.has_expired(node)
            shown = await self._questions.shown(node)
        except ToolError as error:
            raise AnswerRefusedError("expired", str(error)) from error
        if expired:
            raise AnswerRefusedError("expired", "The question has expired: its call has ended.")
        if errors := self._questions.errors(shown, reply):
            message = "; ".join(f"{each.field or 'answer'}: {each.message}" for each in errors)
            raise AnswerRefusedError("invalid", f"The answer does not fit: {message}.", errors)
