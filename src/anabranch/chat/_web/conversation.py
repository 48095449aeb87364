"""One conversation as it is led over the web: one turn at a time, watched by any number of pages.

A turn outlives the page that began it. A question is in the store before anyone is shown it, and an
answer goes to the turn that waits for it; where there is none, because the process was started
again, the tool's call is replayed from its journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Literal, TypeAlias

from anabranch._durable.run_events import RunEvents
from anabranch.agents import Agent
from anabranch.chat._session.typed_values import read_arguments
from anabranch.chat._web.live_turn import LiveTurn, TurnLeftError, current_turn
from anabranch.chat._web.pending_questions import FieldError, Questions
from anabranch.chat._web.thread_lease import BusyError, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
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


class AnswerRefusedError(Exception):
    """An answer cannot be taken: the question is unknown, answered or expired, or it does not fit.

    Attributes:
        reason: ``unknown``, ``answered``, ``expired`` or ``invalid``.
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
        self, agent: Agent, questions: Questions, thread_id: str, events: RunEvents
    ) -> None:
        self.thread_id = thread_id
        clock = agent.dependencies.clock
        self.log: ThreadLog = ThreadLog(events, thread_id, clock)
        self._right = ThreadLease(events, self.log, thread_id, clock)
        self._agent = agent
        self._questions = questions
        self._turn: LiveTurn | None = None
        self._lock = asyncio.Lock()

    async def is_running(self) -> bool:
        """Whether a turn works in it, in any process: one that waits at a question does not."""
        return await self._right.holder() is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens in it."""
        return self._turn is None and self.log.is_written and not self._lock.locked()

    async def say(self, text: str, run_id: str, *, at: Place = HEAD) -> int:
        """Begin a turn with a message of the person; return after which event it begins.

        The message follows the node ``at``; ``None`` makes it another beginning of the thread. The
        same run again is the same message: its events are sent once more.

        An open question is left first: its tool reads that it was cancelled. A message
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
            if (begun := await self.log.begun(run_id)) is not None:
                return begun
            left = await self._leave_questions()
            if at is HEAD or at in left:
                at = await self._agent.head(self.thread_id)
            return await self._begin(run_id, lambda: self._said(text.strip(), at, work))

    async def answer(self, question_id: str, reply: ElicitReply, run_id: str) -> int | None:
        """Answer a question; return after which event the tool goes on.

        If the question had this same answer before, nothing happens: the same run again is sent its
        events once more, and another run has none, ``None``.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
            BusyError: a turn is running.
        """
        async with self._lock:
            if await self._has_answer(question_id, reply):
                return await self.log.begun(run_id)
            turn = self._turn
            if turn is not None and turn.question and turn.question.node_id == question_id:
                after = await turn.resume(run_id, reply)  # the first answer; it is stored at once
                if after is None:
                    raise AnswerRefusedError("answered", ANSWERED)
                return after
            return await self._begin(run_id, lambda: self._agent.answer(question_id, reply))

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
            self._turn = turn
            turn.task = asyncio.create_task(self._run(turn, work))
        return after

    def _new_turn(self) -> LiveTurn:
        return LiveTurn(self.thread_id, self.log, self._right)

    async def _run(self, turn: LiveTurn, work: Callable[[], Awaitable[Node]]) -> None:
        current_turn.set(turn)
        try:
            await work()
        except asyncio.CancelledError:
            await turn.stop()
        except TurnLeftError:
            await turn.succeed()
        except (AnabranchError, ModelError) as error:
            if isinstance(error, StoreError):
                logger.exception("a turn has failed")
            await turn.fail(str(error))
        except Exception:  # what is not meant for the page is for the log
            logger.exception("a turn has failed")
            await turn.fail("The run has failed; the server's log says why.")
        else:
            await turn.succeed()
        finally:
            self._turn = None

    async def _said(
        self, text: str, at: str | None, work: Callable[[Node], Awaitable[Node]]
    ) -> Node:
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

    async def _leave_questions(self) -> list[str]:
        """Cancel open questions, wait until their tools have ended, and return their nodes.

        Raises:
            BusyError: a turn is running, and does not wait at a question.
        """
        turn = self._turn
        cancelled = ElicitReply(action="cancel")
        if turn is not None and turn.question is not None and turn.task is not None:
            left, turn.left = turn.question.node_id, True
            turn.question.reply.set_result(cancelled)
            await asyncio.wait([turn.task])
            return [left]
        head = await self._agent.head(self.thread_id)
        open_here = await self._questions.open_in(self.thread_id) if turn is None else []
        if head is None or all(question.interrupt_id != head for question in open_here):
            return []
        turn = self._new_turn()  # the process was started again meanwhile
        turn.left = True
        work = asyncio.create_task(self._run(turn, lambda: self._agent.answer(head, cancelled)))
        await asyncio.wait([work])
        return [head]

    async def _has_answer(self, question_id: str, reply: ElicitReply) -> bool:
        """Whether the question has been answered like this.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
        """
        store = self._agent.store
        node = await store.node(question_id)
        if node is None or node.kind != "question" or node.thread_id != self.thread_id:
            raise AnswerRefusedError("unknown", f"There is no question {question_id!r} here.")
        followers = await store.children(question_id)
        given = reply.model_dump(mode="json", exclude_none=True)
        for follower in (each for each in followers if each.kind == "answer"):
            if {name: follower.data.get(name) for name in given} == given:
                return True
            raise AnswerRefusedError("answered", ANSWERED)
        if followers:
            raise AnswerRefusedError("expired", "The question has expired: its call has ended.")
        try:
            shown = await self._questions.shown(node)
        except ToolError as error:
            raise AnswerRefusedError("expired", str(error)) from error
        if errors := self._questions.errors(shown, reply):
            message = "; ".join(f"{each.field or 'answer'}: {each.message}" for each in errors)
            raise AnswerRefusedError("invalid", f"The answer does not fit: {message}.", errors)
        return False
