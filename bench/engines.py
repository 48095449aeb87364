"""Calls on engines: rounds a second over three workers, and how long an answer takes to have its effect.

All on one Postgres server that waits for its disk. A call is a tool that asks four questions and acts on
each answer, in a conversation of its own; it is played by persons in this process, who answer at once.

    alone       the tool's rounds on the store of calls and conversations, in this process: what
                an engine, the leases of runs and their events cost, is measured against it
    in process  the chat with the engine of this process, which has no other worker
    DBOS        this process takes what persons do, and three others work on it, as
                ``anabranch web`` and ``anabranch worker --engine dbos`` do
    by hand     the same call as a workflow on DBOS alone, on three workers (``dbos_by_hand.py``)

What is fair, and what is in the favour of DBOS by hand: it has no conversation, no events for pages, and
nothing that goes on elsewhere if its worker dies; a workflow waits in memory for its answer. The workers
of those that rest look into their queues ten times a second meanwhile, ours as theirs.

A round's CPU time is that of this process and the workers; that of Postgres stands beside it. Work that
waits is an effect of a second, on workers that do two at a time. Beside persons who are silent it is
measured after them, twice as many as there are places: if each held one, nothing would go on at all, as
nothing does in workflows with such limits.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Protocol

from anabranch import Capabilities
from anabranch.agents import Agent
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import CONCURRENCY, Conversations
from anabranch.chat._web.run_input import Message
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.chat._web.turn_work import TurnWork
from anabranch.engines import DBOSEngine
from anabranch.messages import ElicitReply
from anabranch.stores import open_stores
from anabranch.testing import MockModel
from anabranch.tree import Thread
from bench.dbos_by_hand import dbos_by_hand
from bench.engine_processes import (
    QUESTIONS,
    OpenEngine,
    connections,
    conversations_at,
    cpu_seconds,
    journey,
    memory,
    server_seconds,
    stored,
    work_on_engine,
    workers,
)
from bench.measure import Row, Times, time_in_turns
from tests.postgres import Server

NAME = "engines"
WORKERS = 3
AT_ONCE, TURNS = 40, 4
ONE_BY_ONE = 12
ROUNDS = QUESTIONS + 1

PLACES, WAITING = 2, 12
SAID = "/journey"
ERRAND = "/journey questions=1 wait=1.0"
"""A call whose effect waits; so many of them, on workers with so many places."""

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
        async for _, events in following:
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
            last = await work.go_on(around)
            if last.kind == "question":
                late.append((int(last.text) - sent) / 1e9)
        return late


@dataclass
class Contender:
    """One way of having calls done, and the CPU time that was spent on it."""

    persons: Persons
    workers: Sequence[int] = ()
    spent: float = 0.0
    spent_by_server: float = 0.0
    names: Iterator[str] = field(default_factory=lambda: (f"call.{n}" for n in count()))

    async def play_at_once(self, server: Path) -> None:
        """Play many calls at once."""
        processes = [os.getpid(), *self.workers]
        self.spent -= cpu_seconds(processes)
        self.spent_by_server -= server_seconds(server)
        names = [next(self.names) for _ in range(AT_ONCE)]
        await asyncio.gather(*map(self.persons.play, names))
        self.spent += cpu_seconds(processes)
        self.spent_by_server += server_seconds(server)

    async def lateness(self) -> float:
        """Play some calls, one after the other; return the median of how late effects are."""
        names = [next(self.names) for _ in range(ONE_BY_ONE)]
        return median([late for name in names for late in await self.persons.play(name)])


@asynccontextmanager
async def alone(url: str) -> AsyncGenerator[Contender]:
    calls, trees = open_stores(url)
    agent = Agent(
        trees,
        MockModel(lambda _: "unused"),
        tools=[journey],
        calls=calls,
        capabilities=Capabilities(),
    )
    yield Contender(Alone(agent))
    await trees.close()


@asynccontextmanager
async def in_process(url: str) -> AsyncGenerator[Contender]:
    async with conversations_at(url, None, CONCURRENCY) as conversations:
        yield Contender(InChat(conversations))


@asynccontextmanager
async def on_engine(
    url: str, open_engine: OpenEngine, number: int = WORKERS, places: int = AT_ONCE
) -> AsyncGenerator[tuple[InChat, list[int]]]:
    """Persons whose calls are taken by so many workers, and these."""
    work = partial(work_on_engine, url, open_engine, places)
    async with (
        conversations_at(url, open_engine, None) as conversations,
        workers(number, work) as pids,
    ):
        yield InChat(conversations), pids


@dataclass(frozen=True)
class Measured:
    """An engine.

    Attributes:
        name: what it is called in the table.
        open: opens it beside a store.
        by_hand: so many workers on a database, and persons whose calls they take, without us.
        goal: milliseconds from an answer to its effect.
    """

    name: str
    open: OpenEngine
    by_hand: Callable[[str, int], AbstractAsyncContextManager[tuple[Persons, list[int]]]]
    goal: float


ENGINES = (Measured("DBOS", DBOSEngine, dbos_by_hand, 120),)


async def compared(server: Server, engine: Measured) -> list[Row]:
    """Measure rounds, their CPU time, and how late effects are."""
    async with AsyncExitStack() as stack:
        url = server.new_url()
        ours, pids = await stack.enter_async_context(on_engine(url, engine.open))
        theirs, others = await stack.enter_async_context(engine.by_hand(server.new_url(), WORKERS))
        contenders = {
            "alone": await stack.enter_async_context(alone(server.new_url())),
            "in process": await stack.enter_async_context(in_process(server.new_url())),
            engine.name: Contender(ours, pids),
            f"{engine.name} by hand": Contender(theirs, others),
        }
        times = await time_in_turns(
            {name: partial(each.play_at_once, server.folder) for name, each in contenders.items()},
            TURNS,
        )
        late = {name: await each.lateness() for name, each in contenders.items()}
    size = stored(url) / ((TURNS + 1) * AT_ONCE + ONE_BY_ONE) / 2**10
    what = f"a conversation with a call of {ROUNDS} rounds in Postgres"
    return [*described(engine, contenders, times, late), Row(NAME, what, size, "KiB")]


def described(
    engine: Measured, contenders: Mapping[str, Contender], times: Times, late: Mapping[str, float]
) -> Iterator[Row]:
    at_once, by_hand = f"{AT_ONCE} calls at once", f"{engine.name} by hand"
    ratio = times.ratio(engine.name, by_hand)
    yield Row(NAME, f"{at_once}: {engine.name} / {by_hand}", ratio, goal=1.25)
    for name in contenders:
        yield Row(NAME, f"{at_once}: {name}", AT_ONCE * ROUNDS / times.best(name), "rounds/s")
    for name, seconds in late.items():
        goal = engine.goal if name == engine.name else None
        yield Row(NAME, f"an answer has its effect, p50: {name}", seconds * 1e3, "ms", goal)
    ratio = contenders[engine.name].spent / contenders["alone"].spent
    yield Row(NAME, f"CPU time of a round: {engine.name} / alone", ratio, goal=2)
    for name, each in contenders.items():
        rounds = (TURNS + 1) * AT_ONCE * ROUNDS / 1e3
        yield Row(NAME, f"CPU time of a round: {name}", each.spent / rounds, "ms")
        measured = f"CPU time of a round: {name}, Postgres"
        yield Row(NAME, measured, each.spent_by_server / rounds, "ms")


async def waiting(server: Server, engine: Measured) -> list[Row]:
    """Measure work that waits, on one worker and on three, and there beside silent persons."""
    url = server.new_url()
    before = connections(url)
    async with on_engine(url, engine.open, 1, PLACES) as (persons, [pid]):
        one = await errands(persons, "one")
        opened, resident = connections(url) - before, memory(pid)
    async with on_engine(server.new_url(), engine.open, WORKERS, PLACES) as (persons, _):
        three = await errands(persons, "three")
        silent = [f"silent.{each}" for each in range(2 * PLACES * WORKERS)]
        await asyncio.gather(*(persons.begin(name, SAID) for name in silent))
        beside = await errands(persons, "beside")
    waits = f"{WAITING} effects that wait, {engine.name}"
    held = f"beside {len(silent)} silent persons / without them"
    return [
        Row(NAME, f"{waits}: {WORKERS} workers / one", three / one, goal=0.4),
        Row(NAME, f"{waits}: {held}", beside / three, goal=1.1),
        Row(NAME, f"memory of a worker, {engine.name}", resident / 2**20, "MiB"),
        Row(NAME, f"of one that takes runs, and a worker, {engine.name}", opened, "connections"),
    ]


async def errands(persons: InChat, name: str) -> float:
    """Play calls whose effects wait; return how many seconds that takes.

    No other call has the ``name``, on whatever store: the engine knows calls by their names alone.
    """
    await persons.play(f"{name}.warm", SAID)
    start = perf_counter()
    await asyncio.gather(*(persons.play(f"{name}.{each}", ERRAND) for each in range(WAITING)))
    return perf_counter() - start


async def rows() -> list[Row]:
    found: list[Row] = []
    # The path of a socket is short, and the server's user must get there.
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        server = Server(Path(place), durable=True, connections=400)  # of nine processes
        server.start()
        try:
            for engine in ENGINES:
                found += [*await compared(server, engine), *await waiting(server, engine)]
        finally:
            server.stop()
    return found


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
