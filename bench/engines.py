"""Calls on engines: rounds a second over three workers, and how long an answer takes to have its effect.

All beside one Postgres server that waits for its disk. A call is a tool that asks four questions and acts
on each answer, in a conversation of its own; it is played by persons in this process, who answer at once.

    alone       the tool's rounds on the store of calls and conversations, in this process: what
                an engine, the leases of runs and their events cost, is measured against it
    in process  the chat with the engine of this process, which has no other worker
    an engine   this process takes what persons do, and three others work on it, as
                ``anabranch web`` and ``anabranch worker --engine …`` do
    by hand     the same call as a workflow on that engine alone, on three workers
                (``dbos_by_hand.py``, ``restate_by_hand.py``)

The engines are DBOS, and Restate where ``make interop`` has put its server: with two partitions, and
waiting for its disk, as it does by default. Its workers share a port of this machine, ours as theirs.

What is fair, and what is in the favour of those by hand: they have no conversation and no events for
pages. With DBOS nothing goes on elsewhere if its worker dies, and a workflow waits in memory for its
answer. On Restate everything of theirs is stored once, by Restate; ours is stored in Postgres, too. A
workflow there does not wait in memory: called over HTTP/1.1, as those who share a port must be, it is
called again from its journal with each answer. While one way is measured, the workers of the others are
stopped: those of DBOS look into their queues ten times a second.

A round's CPU time is that of this process and the workers; that of the servers stands beside it. Work
that waits is an effect of three seconds, as long as a reply of a model takes, on workers that do two at a
time. Beside persons who are silent it is measured after them, twice as many as there are places: if each
held one, nothing would go on at all, as nothing does in workflows with such limits.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
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
from bench.engine_persons import SAID, Alone, InChat, Persons
from bench.engine_processes import (
    QUESTIONS,
    OpenEngine,
    at_rest,
    at_work,
    connections,
    conversations_at,
    cpu_seconds,
    journey,
    memory,
    on_restate,
    server_seconds,
    shared_port,
    stored,
    work_on_engine,
    workers,
)
from bench.measure import Row, Times, time_in_turns
from bench.restate_by_hand import restate_by_hand
from tests.interop.restate_server import restate_server
from tests.postgres import Server

NAME = "engines"
WORKERS = 3
AT_ONCE, TURNS = 40, 4
ONE_BY_ONE = 12
ROUNDS = QUESTIONS + 1

PLACES, WAITING = 2, 12
ERRAND = "/journey questions=1 wait=3.0"
"""A call whose effect waits; so many of them, on workers with so many places."""

CPU = Callable[[], float]
"""Returns the CPU time of a server, in seconds."""


@dataclass
class Contender:
    """One way of having calls done, and the CPU time that was spent on it.

    Attributes:
        persons: play the calls.
        servers: what they are stored in, and what wakes them.
        workers: the processes that work on them beside this one; they are at rest.
        spent: CPU time of this process and the workers.
        spent_by: CPU time of each server.
        names: of the calls.
    """

    persons: Persons
    servers: Mapping[str, CPU]
    workers: Sequence[int] = ()
    spent: float = 0.0
    spent_by: dict[str, float] = field(default_factory=dict[str, float])
    names: Iterator[str] = field(default_factory=lambda: (f"call.{n}" for n in count()))

    async def play_at_once(self) -> None:
        """Play many calls at once."""
        names = [next(self.names) for _ in range(AT_ONCE)]
        with at_work(self.workers):
            self._spend(-1)
            await asyncio.gather(*map(self.persons.play, names))
            self._spend(1)

    def _spend(self, sign: int) -> None:
        self.spent += sign * cpu_seconds([os.getpid(), *self.workers])
        for name, seconds in self.servers.items():
            self.spent_by[name] = self.spent_by.get(name, 0.0) + sign * seconds()

    async def lateness(self) -> float:
        """Play some calls, one after the other; return the median of how late effects are."""
        names = [next(self.names) for _ in range(ONE_BY_ONE)]
        with at_work(self.workers):
            return median([late for name in names for late in await self.persons.play(name)])


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
        servers: what it has beside Postgres, which workflows by hand do not need then.
    """

    name: str
    open: OpenEngine
    by_hand: Callable[[str, int], AbstractAsyncContextManager[tuple[Persons, list[int]]]]
    goal: float
    servers: Mapping[str, CPU] = field(default_factory=dict[str, CPU])


@contextmanager
def restate(folder: Path) -> Generator[Measured]:
    """Restate, with its data in ``folder``."""
    with restate_server(folder) as server, shared_port() as port:
        yield Measured(
            "Restate",
            partial(on_restate, server.ingress, server.admin, port),
            partial(restate_by_hand, server),
            goal=40,
            servers={"Restate": partial(cpu_seconds, [server.pid])},
        )


async def compared(server: Server, engines: Sequence[Measured]) -> list[Row]:
    """Measure rounds, their CPU time, and how late effects are."""
    postgres: Mapping[str, CPU] = {"Postgres": partial(server_seconds, server.folder)}
    async with AsyncExitStack() as stack:
        on_engines: dict[str, Contender] = {}
        for each in engines:
            ours, pids = await stack.enter_async_context(on_engine(server.new_url(), each.open))
            theirs, others = await stack.enter_async_context(
                each.by_hand(server.new_url(), WORKERS)
            )
            on_engines[each.name] = Contender(ours, {**postgres, **each.servers}, pids)
            on_engines[f"{each.name} by hand"] = Contender(theirs, each.servers or postgres, others)
        url = server.new_url()
        chat = await stack.enter_async_context(in_process(url))
        contenders = {
            "alone": Contender(await stack.enter_async_context(alone(server.new_url())), postgres),
            "in process": Contender(chat, postgres),
            **on_engines,
        }
        for contender in contenders.values():
            stack.enter_context(at_rest(contender.workers))
        playing = {name: each.play_at_once for name, each in contenders.items()}
        times = await time_in_turns(playing, TURNS)
        late = {name: await each.lateness() for name, each in contenders.items()}
    size = stored(url) / ((TURNS + 1) * AT_ONCE + ONE_BY_ONE) / 2**10
    what = f"a conversation with a call of {ROUNDS} rounds in Postgres"
    return [*described(engines, contenders, times, late), Row(NAME, what, size, "KiB")]


def described(
    engines: Sequence[Measured],
    contenders: Mapping[str, Contender],
    times: Times,
    late: Mapping[str, float],
) -> Iterator[Row]:
    at_once = f"{AT_ONCE} calls at once"
    for engine in engines:
        by_hand = f"{engine.name} by hand"
        ratio = times.ratio(engine.name, by_hand)
        yield Row(NAME, f"{at_once}: {engine.name} / {by_hand}", ratio, goal=1.25)
    for name in contenders:
        yield Row(NAME, f"{at_once}: {name}", AT_ONCE * ROUNDS / times.best(name), "rounds/s")
    goals = {engine.name: engine.goal for engine in engines}
    for name, seconds in late.items():
        measured = f"an answer has its effect, p50: {name}"
        yield Row(NAME, measured, seconds * 1e3, "ms", goals.get(name))
    for engine in engines:
        ratio = contenders[engine.name].spent / contenders["alone"].spent
        yield Row(NAME, f"CPU time of a round: {engine.name} / alone", ratio, goal=2)
    rounds = (TURNS + 1) * AT_ONCE * ROUNDS / 1e3
    for name, each in contenders.items():
        yield Row(NAME, f"CPU time of a round: {name}", each.spent / rounds, "ms")
        for by, spent in each.spent_by.items():
            measured = f"CPU time of a round: {name}, {by}"
            yield Row(NAME, measured, spent / rounds, "ms")


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
    # The path of a socket is short, and the server's user must get there.
    with tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as stack:
        server = Server(Path(place), durable=True, connections=400)  # of all these processes
        server.start()
        stack.callback(server.stop)
        engines = [Measured("DBOS", DBOSEngine, dbos_by_hand, goal=120)]
        try:
            engines.append(stack.enter_context(restate(Path(place) / "restate")))
        except FileNotFoundError as error:
            sys.stderr.write(f"{NAME}: Restate is not measured. {error}\n")
        found = await compared(server, engines)
        for engine in engines:
            found += await waiting(server, engine)
    return found


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
