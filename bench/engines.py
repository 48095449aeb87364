"""Calls on engines: rounds a second over three workers, and the time from an answer to its effect.

All contenders use one Postgres server that waits for its disk. A call is a tool that asks four questions
and acts on each answer, in a conversation of its own. Users in this process answer immediately.

    alone       the tool's rounds on the store of calls and conversations, in this process: the
                measure for the cost of an engine, of the leases of runs, and of their events
    in process  the chat with the engine of this process, which has no other worker
    DBOS        this process takes requests, and three workers run them, as ``anabranch web`` and
                ``anabranch worker --engine dbos`` do
    by hand     the same call as a workflow of DBOS alone, on three workers (``dbos_by_hand.py``)

The workflows by hand do less: they have no conversation, and no events for pages. Each waits in memory for
its answer, and no other worker continues the workflow of a dead worker. During the measurement of one
contender, the workers of the others are stopped, because they poll their queues ten times a second.

A round's CPU time is the time of this process and the workers; the time of Postgres has a separate row. Work
that waits is an effect of three seconds, as long as a reply of a model, on workers with two places. With
silent users, such work is measured after their calls, which are twice as many as the places. If a silent
user's call held a place, no work would continue, as in workflows with such limits.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter

from anabranch import Capabilities
from anabranch.agents import Agent
from anabranch.chat._web.conversations import CONCURRENCY
from anabranch.engines import DBOSEngine
from anabranch.stores import open_stores
from anabranch.testing import MockModel
from bench.dbos_by_hand import dbos_by_hand
from bench.engine_processes import (
    QUESTIONS,
    at_rest,
    at_work,
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
from bench.engine_users import SAID, Alone, InChat, Users
from bench.measure import Row, Times, time_in_turns
from tests.postgres import Server

NAME = "engines"
WORKERS = 3
AT_ONCE, TURNS = 40, 4
ONE_BY_ONE = 12
ROUNDS = QUESTIONS + 1

PLACES, WAITING = 2, 12
ERRAND = "/journey questions=1 wait=3.0"
"""A call whose effect waits; so many of them, on workers with so many places."""


@dataclass
class Contender:
    """One way to run calls, and its CPU time.

    Attributes:
        users: play the calls.
        postgres: returns the CPU time in seconds of the server that stores the calls.
        workers: the processes that work on the calls next to this one; they are stopped between turns.
        spent: CPU time of this process and the workers.
        spent_by_postgres: CPU time of the server.
        names: the names of the calls.
    """

    users: Users
    postgres: Callable[[], float]
    workers: Sequence[int] = ()
    spent: float = 0.0
    spent_by_postgres: float = 0.0
    names: Iterator[str] = field(default_factory=lambda: (f"call.{n}" for n in count()))

    async def play_at_once(self) -> None:
        """Play many calls at the same time."""
        names = [next(self.names) for _ in range(AT_ONCE)]
        with at_work(self.workers):
            self._spend(-1)
            await asyncio.gather(*map(self.users.play, names))
            self._spend(1)

    def _spend(self, sign: int) -> None:
        self.spent += sign * cpu_seconds([os.getpid(), *self.workers])
        self.spent_by_postgres += sign * self.postgres()

    async def lateness(self) -> float:
        """Play some calls, one after the other; return the median delay of their effects."""
        names = [next(self.names) for _ in range(ONE_BY_ONE)]
        with at_work(self.workers):
            return median([late for name in names for late in await self.users.play(name)])


@asynccontextmanager
async def alone(url: str) -> AsyncGenerator[Alone]:
    calls, trees = open_stores(url)
    agent = Agent(
        trees,
        MockModel(lambda _: "unused"),
        tools=[journey],
        calls=calls,
        capabilities=Capabilities(),
    )
    yield Alone(agent)
    await trees.close()


@asynccontextmanager
async def in_process(url: str) -> AsyncGenerator[InChat]:
    async with conversations_at(url, None, CONCURRENCY) as conversations:
        yield InChat(conversations)


@asynccontextmanager
async def on_dbos(
    url: str, number: int = WORKERS, places: int = AT_ONCE
) -> AsyncGenerator[tuple[InChat, list[int]]]:
    """Start workers on DBOS; yield users whose calls the workers run, and the workers."""
    work = partial(work_on_engine, url, DBOSEngine, places)
    async with (
        conversations_at(url, DBOSEngine, None) as conversations,
        workers(number, work) as pids,
    ):
        yield InChat(conversations), pids


async def compared(server: Server) -> list[Row]:
    """Measure rounds, their CPU time, and the delay of effects."""
    postgres = partial(server_seconds, server.folder)
    async with AsyncExitStack() as stack:
        ours, pids = await stack.enter_async_context(on_dbos(server.new_url()))
        theirs, others = await stack.enter_async_context(dbos_by_hand(server.new_url(), WORKERS))
        url = server.new_url()
        chat = await stack.enter_async_context(in_process(url))
        contenders = {
            "alone": Contender(await stack.enter_async_context(alone(server.new_url())), postgres),
            "in process": Contender(chat, postgres),
            "DBOS": Contender(ours, postgres, pids),
            "DBOS by hand": Contender(theirs, postgres, others),
        }
        for contender in contenders.values():
            stack.enter_context(at_rest(contender.workers))
        playing = {name: each.play_at_once for name, each in contenders.items()}
        times = await time_in_turns(playing, TURNS)
        late = {name: await each.lateness() for name, each in contenders.items()}
    size = stored(url) / ((TURNS + 1) * AT_ONCE + ONE_BY_ONE) / 2**10
    what = f"a conversation with a call of {ROUNDS} rounds in Postgres"
    return [*described(contenders, times, late), Row(NAME, what, size, "KiB")]


def described(
    contenders: Mapping[str, Contender], times: Times, late: Mapping[str, float]
) -> Iterator[Row]:
    at_once = f"{AT_ONCE} calls at once"
    ratio = times.ratio("DBOS", "DBOS by hand")
    yield Row(NAME, f"{at_once}: DBOS / DBOS by hand", ratio, goal=1.25)
    for name in contenders:
        yield Row(NAME, f"{at_once}: {name}", AT_ONCE * ROUNDS / times.best(name), "rounds/s")
    for name, seconds in late.items():
        measured = f"an answer has its effect, p50: {name}"
        yield Row(NAME, measured, seconds * 1e3, "ms", 120 if name == "DBOS" else None)
    ratio = contenders["DBOS"].spent / contenders["alone"].spent
    yield Row(NAME, "CPU time of a round: DBOS / alone", ratio, goal=2)
    rounds = (TURNS + 1) * AT_ONCE * ROUNDS / 1e3
    for name, each in contenders.items():
        yield Row(NAME, f"CPU time of a round: {name}", each.spent / rounds, "ms")
        measured = f"CPU time of a round: {name}, Postgres"
        yield Row(NAME, measured, each.spent_by_postgres / rounds, "ms")


async def waiting(server: Server) -> list[Row]:
    """Measure work that waits: on one worker, on three, and on three next to silent users."""
    url = server.new_url()
    before = connections(url)
    async with on_dbos(url, 1, PLACES) as (users, [pid]):
        one = await errands(users, "one")
        opened, resident = connections(url) - before, memory(pid)
    async with on_dbos(server.new_url(), WORKERS, PLACES) as (users, _):
        three = await errands(users, "three")
        silent = [f"silent.{each}" for each in range(2 * PLACES * WORKERS)]
        await asyncio.gather(*(users.begin(name, SAID) for name in silent))
        beside = await errands(users, "beside")
    waits = f"{WAITING} effects that wait, DBOS"
    held = f"with {len(silent)} silent users / without silent users"
    return [
        Row(NAME, f"{waits}: {WORKERS} workers / one", three / one, goal=0.4),
        Row(NAME, f"{waits}: {held}", beside / three, goal=1.1),
        Row(NAME, "memory of a worker, DBOS", resident / 2**20, "MiB"),
        Row(NAME, "of one that takes runs, and a worker, DBOS", opened, "connections"),
    ]


async def errands(users: InChat, name: str) -> float:
    """Play calls whose effects wait; return the seconds.

    No other call has the ``name``, on any store, because the engine knows calls by name alone.
    """
    await users.play(f"{name}.warm", SAID)
    start = perf_counter()
    await asyncio.gather(*(users.play(f"{name}.{each}", ERRAND) for each in range(WAITING)))
    return perf_counter() - start


async def rows() -> list[Row]:
    # A socket's path must be short, and open to the server's user.
    with tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as stack:
        server = Server(Path(place), durable=True, connections=400)  # of all these processes
        server.start()
        stack.callback(server.stop)
        return [*await compared(server), *await waiting(server)]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
