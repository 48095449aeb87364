"""Who plays the calls of ``engines.py``: persons in a chat, or of an agent alone, who answer at once."""

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

__all__ = ["Alone", "InChat", "Persons"]

SAID = "/journey"
YES = ElicitReply(action="accept", content={"text": "yes"})


class Persons(Protocol):
    """Who plays calls."""

    async def play(self, name: str) -> list[float]:
        """Play one call; return how many seconds after each answer its effect happened."""
        ...


class InChat:
    """Persons in a chat, whose runs are taken by whatever worker there is."""

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
    """A question: its id, and when the effect before it happened."""

    id: str
    acted: int


async def question(conversation: Conversation, after: int) -> Question | None:
    """Wait for the end of the run after an event; return what it asks, if it does."""
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
    """Persons of an agent without a chat around it: nothing is stored but calls and conversations."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def play(self, name: str) -> list[float]:  # noqa: D102
        agent, late = self._agent, list[float]()
        await agent.store.create_thread(Thread(name, 0.0))
        work = TurnWork(agent, name)
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
