"""Users who play the calls of ``engines.py``: in a chat, or of an agent alone. They answer immediately."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from time import perf_counter_ns
from typing import Protocol

from anabranch.agents import Agent
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.run_input import Message
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.chat._web.turn_work import TurnWork
from anabranch.messages import ElicitReply
from anabranch.tree import Thread

__all__ = ["Alone", "InChat", "Users"]

SAID = "/journey"
YES = ElicitReply(action="accept", content={"text": "yes"})


class Users(Protocol):
    """Users who play calls."""

    async def play(self, name: str) -> list[float]:
        """Play one call; return the seconds from each answer to its effect."""
        ...


class InChat:
    """Users of a chat, whose runs any worker may take."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def play(self, name: str, said: str = SAID) -> list[float]:  # noqa: D102
        late: list[float] = []
        conversation, asked = await self.begin(name, said)
        for number in count(1):
            if asked is None:
                return late
            sent = perf_counter_ns()
            after = await conversation.answer({asked.id: YES}, f"{name}.{number}")
            asked = await question(conversation, after or 0)
            if asked is not None:
                late.append((asked.acted - sent) / 1e9)
        raise AssertionError

    async def begin(self, name: str, said: str) -> tuple[Conversation, Question | None]:
        """Play one call up to its first question."""
        conversation = await self._conversations.begin(Thread(name, 0.0))
        assert conversation is not None, name
        return conversation, await question(conversation, await conversation.say(said, f"{name}.0"))


@dataclass(frozen=True)
class Question:
    """A question: its id, and the time of the effect before it."""

    id: str
    acted: int


async def question(conversation: Conversation, after: int) -> Question | None:
    """Wait for the end of the run after an event; return the run's question, if there is one."""
    async with aclosing(conversation.log.follow(after)) as following:
        async for _, events, _ in following:
            for event in events:
                if event.startswith(RUN_ENDS):
                    outcome = json.loads(event)["outcome"]
                    for each in outcome.get("interrupts", ()):
                        return Question(each["id"], int(each["message"]))
                    assert outcome["type"] == "success", outcome
                    return None
    raise AssertionError


class Alone:
    """Users of an agent without a chat: only calls and conversations are stored."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def play(self, name: str) -> list[float]:  # noqa: D102
        agent, late = self._agent, list[float]()
        thread = Thread(name, 0.0)
        await agent.store.create_thread(thread)
        work = TurnWork(agent, thread)
        last = await work.run(name, Message(SAID), is_new=True)
        while last.kind == "question":
            sent = perf_counter_ns()
            await agent.add_answer(last.id, YES)
            around = await agent.store.around(name)
            assert around is not None
            last = await work.resume(around)
            if last.kind == "question":
                late.append((int(last.text) - sent) / 1e9)
        return late
