"""Random concurrent programs, the questions that each round must ask, and an interpreter.

A program is a tree. :func:`expected` is the model: it returns the questions of a tree for given
answers, without running anything. :class:`Interpreter` runs the same tree with real tasks, groups,
locks, queues, threads and branches. The delays come from outside, so that a program can run again
with other timing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread

from anabranch._engine import Branch
from tests.engine.harness import ask, ask_here, branch, gather, race, step
from tests.patience import PATIENCE

AT_ONCE = [
    "gather", "asyncio.gather", "TaskGroup", "anyio", "wait", "wait for first", "helper",
    "shielded gather", "as_completed",
]  # fmt: skip
ONE_BY_ONE = [
    "sequence",
    "lock",
    "anyio lock",
    "event",
    "queue",
    "stream",
    "generator",
    "condition",
]
AROUND = ["branch", "shield", "wait_for", "timeout", "fail_after", "task", "race", "nested branch"]

BACKGROUND = ["heartbeat", "spinner", "poller", "anyio poller", "ping-pong", "future", "steps"]
"""Background tasks that run next to a program and never end."""


@dataclass(frozen=True)
class Tree:
    """A node of a program: its ``kind``, its ``name`` (for a leaf, the question), and its children."""

    kind: str
    name: str
    inside: tuple[Tree, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.inside)) or self.name})"


def grow(dice: random.Random, name: str = "q", depth: int = 3) -> Tree:
    if depth == 0 or dice.random() < 0.15:
        return Tree(dice.choice(["ask", "ask", "ask here", "step", "pause", "thread"]), name)
    family = dice.choice([AT_ONCE, AT_ONCE, ONE_BY_ONE, AROUND, ["semaphore"]])
    kind = dice.choice(family)
    number = 1 if family is AROUND else dice.randint(2, 4 if kind == "semaphore" else 3)
    inside = tuple(grow(dice, f"{name}{n}", depth - 1) for n in range(number))
    return Tree(kind, name, inside)


# -- the model -------------------------------------------------------------------------------


def expected(tree: Tree, answered: Collection[str]) -> tuple[bool, list[str]]:
    """Return whether ``tree`` ends with these answers, and its questions."""
    if tree.kind in {"ask", "ask here"}:
        return tree.name in answered, [] if tree.name in answered else [tree.name]
    if not tree.inside:
        return True, []
    parts = [expected(part, answered) for part in tree.inside]
    if tree.kind in ONE_BY_ONE:
        parts = _unfinished(parts)[:1]
    elif tree.kind == "semaphore":
        parts = _unfinished(parts)[:2]
    done = all(done for done, _ in parts)
    asked = [question for _, questions in parts for question in questions]
    if tree.kind == "race" and not done:
        asked.append(f"never {tree.name}")
    return done, asked


def _unfinished(parts: list[tuple[bool, list[str]]]) -> list[tuple[bool, list[str]]]:
    return [part for part in parts if not part[0]]


def value_of(tree: Tree) -> Any:
    if tree.kind in {"ask", "ask here"}:
        return tree.name.upper()
    if not tree.inside:
        return tree.name
    return [value_of(part) for part in tree.inside]


# -- running ---------------------------------------------------------------------------------


def effect(name: str) -> str:
    return name


def going_on(kind: str) -> list[Coroutine[Any, Any, None]]:
    first, second = asyncio.Queue[None](), asyncio.Queue[None]()
    if kind == "ping-pong":
        first.put_nowait(None)
        return [_pass_on(first, second), _pass_on(second, first)]
    if kind == "steps":
        return [_steps()]
    if kind == "future":
        return [_forever()]
    return [_again(0 if kind == "spinner" else 0.001)]


async def _pass_on(source: asyncio.Queue[None], target: asyncio.Queue[None]) -> None:
    while True:
        await source.get()
        target.put_nowait(None)
        await asyncio.sleep(0.001)


async def _steps() -> None:
    for number in range(100_000):
        await step(effect, "beat", name=f"beat{number}")


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


async def _again(seconds: float) -> None:
    while True:  # noqa: ASYNC110 - it is not there to wait for anything
        await asyncio.sleep(seconds)


class Interpreter:
    """Runs a tree; ``delays`` decides only how long each part takes."""

    def __init__(self, delays: random.Random) -> None:
        self._delays = delays

    async def run(self, tree: Tree) -> Any:
        if tree.kind in ONE_BY_ONE:
            return await self.one_by_one(tree)
        if tree.kind in AT_ONCE:
            return await self.at_once(tree.kind, [self.late(part) for part in tree.inside])
        if tree.kind in AROUND:
            return [await self.around(tree, tree.inside[0])]
        if tree.kind == "semaphore":
            free = asyncio.Semaphore(2)
            return list(await gather([self.holding(free, part) for part in tree.inside]))
        return await self.leaf(tree)

    async def beside(self, kind: str, tree: Tree) -> Any:
        if kind == "poller":
            async with asyncio.TaskGroup() as group:
                polling = group.create_task(asyncio.sleep(3600))
                value = await self.run(tree)
                polling.cancel()
            return value
        if kind == "anyio poller":
            value = None  # the engine must assume that a task group swallows an exception
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 3600)
                value = await self.run(tree)
                group.cancel_scope.cancel()
            return value
        tasks = [asyncio.create_task(part) for part in going_on(kind)]
        value = await self.run(tree)
        for task in tasks:
            task.cancel()
        return value

    async def late(self, tree: Tree) -> Any:
        await self.pause()
        return await self.run(tree)

    async def pause(self) -> None:
        match self._delays.randrange(8):
            case 0 | 1:
                await asyncio.sleep(0)
            case 2 | 3:
                await asyncio.sleep(self._delays.random() * 0.004)
            case 4:
                await asyncio.to_thread(effect, "")
            case 5:
                await anyio.to_thread.run_sync(effect, "")
            case _:
                pass

    async def leaf(self, tree: Tree) -> Any:
        if tree.kind == "ask":
            return await ask(tree.name)
        if tree.kind == "ask here":
            return await asyncio.create_task(ask_here(tree.name))
        if tree.kind == "step":
            return await step(effect, tree.name)
        if tree.kind == "thread":
            return await asyncio.to_thread(effect, tree.name)
        await self.pause()
        return tree.name

    # -- concurrent parts

    async def at_once(self, kind: str, parts: list[Any]) -> list[Any]:
        if kind == "gather":
            return list(await gather(parts))
        if kind == "asyncio.gather":
            return await asyncio.gather(*parts)
        if kind == "shielded gather":
            return await asyncio.shield(asyncio.gather(*parts))
        if kind == "anyio":
            return await self.in_anyio(parts)
        if kind == "TaskGroup":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part) for part in parts]
                await self.pause()
            return [task.result() for task in tasks]
        return await self.in_tasks(kind, [asyncio.create_task(part) for part in parts])

    async def in_tasks(self, kind: str, tasks: list[asyncio.Task[Any]]) -> list[Any]:
        if kind == "helper":
            last = await tasks.pop()
            return [*[await task for task in tasks], last]
        if kind == "as_completed":
            for done in asyncio.as_completed(tasks):
                await done
        else:
            only_first = kind == "wait for first"
            until = asyncio.FIRST_COMPLETED if only_first else asyncio.ALL_COMPLETED
            await asyncio.wait(tasks, return_when=until)
        return [await task for task in tasks]

    async def in_anyio(self, parts: list[Any]) -> list[Any]:
        values: dict[int, Any] = {}

        async def one(number: int, part: Awaitable[Any]) -> None:
            values[number] = await part

        async with anyio.create_task_group() as group:
            for number, part in enumerate(parts):
                group.start_soon(one, number, part)
            await self.pause()
        return [values[number] for number in range(len(parts))]

    # -- sequential parts in several tasks

    async def one_by_one(self, tree: Tree) -> list[Any]:
        if tree.kind == "sequence":
            return [await self.late(part) for part in tree.inside]
        if tree.kind == "generator":
            return [value async for value in self.generated(tree.inside)]
        if tree.kind in {"lock", "anyio lock"}:
            lock = asyncio.Lock() if tree.kind == "lock" else anyio.Lock()
            return list(await gather([self.holding(lock, part) for part in tree.inside]))
        with contextlib.ExitStack() as streams:
            handing = [self.hand_over(tree.kind, streams) for _ in tree.inside[1:]]
            links = zip([None, *handing], [*handing, None], tree.inside, strict=True)
            return list(await gather([self.link(*link) for link in links]))

    async def generated(self, parts: tuple[Tree, ...]) -> AsyncGenerator[Any]:
        for part in parts:
            yield await self.run(part)

    async def holding(self, lock: Any, part: Tree) -> Any:
        async with lock:
            return await self.late(part)

    async def link(self, before: Any, after: Any, part: Tree) -> Any:
        if before is not None:
            await before[1]()
        value = await self.late(part)
        if after is not None:
            await after[0]()
        return value

    def hand_over(
        self, kind: str, streams: contextlib.ExitStack
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Return a function by which a task lets the next one continue, and a function that waits for it."""
        if kind == "event":
            event = asyncio.Event()

            async def tell() -> None:
                event.set()

            return tell, event.wait
        if kind == "queue":
            queue: asyncio.Queue[None] = asyncio.Queue()
            return lambda: queue.put(None), queue.get
        if kind == "stream":
            send, receive = anyio.create_memory_object_stream[None](1)
            streams.enter_context(send)
            streams.enter_context(receive)
            return lambda: send.send(None), receive.receive
        condition = asyncio.Condition()
        told: list[bool] = []

        async def notify() -> None:
            async with condition:
                told.append(True)
                condition.notify_all()

        async def wait() -> None:
            async with condition:
                await condition.wait_for(lambda: bool(told))

        return notify, wait

    # -- one part inside a wrapper

    async def around(self, tree: Tree, part: Tree) -> Any:
        kind = tree.kind
        if kind in {"branch", "nested branch"}:
            return await branch(self.as_branch(part, nested=kind != "branch"), name="inner")
        late = self.late(part)
        if kind == "race":
            return await race(ask(f"never {tree.name}"), late)
        if kind == "timeout":
            async with asyncio.timeout(PATIENCE):
                return await late
        if kind == "fail_after":
            with anyio.fail_after(PATIENCE):
                return await late
        wrap: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "shield": asyncio.shield,
            "task": asyncio.create_task,
            "wait_for": lambda part: asyncio.wait_for(part, PATIENCE),
        }
        return await wrap[kind](late)

    def as_branch(self, part: Tree, *, nested: bool) -> Callable[[Branch], Awaitable[Any]]:
        async def inner(_: Branch) -> Any:
            if nested:
                return await asyncio.create_task(branch(self.as_branch(part, nested=False)))
            return await self.late(part)

        return inner
