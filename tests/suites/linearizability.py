"""Runs several clients on one store, and searches for an order that explains their results.

A store is linearizable if some sequential order of the operations explains every result. The order
must agree with time.
"""

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import anyio

from anabranch._durable import AnswerRecord, CallRecord, OpenedRound, RoundRecord
from anabranch.errors import StoreError
from tests.suites.expectations import opened, yes


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a store's method."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Seen:
    """An operation as a client saw it: its start and end (in ticks), and its result."""

    operation: Operation
    began: int
    ended: int
    result: object


class Model(Protocol):
    def do(self, operation: Operation) -> object: ...


async def run_clients(
    stores: Sequence[object], clients: Sequence[Sequence[Operation]]
) -> list[Seen]:
    """Let clients work at the same time, each on a list of operations; return the results.

    Client ``n`` uses store ``n`` modulo the number of stores.
    """
    seen: list[Seen] = []
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return ticks

    async def work(store: object, operations: Sequence[Operation]) -> None:
        for operation in operations:
            method: Callable[..., Any] = getattr(store, operation.method)
            began = tick()
            try:
                result = await method(*operation.arguments, **operation.options)
            except StoreError:
                result = StoreError
            seen.append(Seen(operation, began, tick(), result))

    async with anyio.create_task_group() as group:
        for number, operations in enumerate(clients):
            group.start_soon(work, stores[number % len(stores)], operations)
    return seen


async def compare(store: object, model: Model, program: Sequence[Operation], where: str) -> None:
    """Run a program in a store and in its model, one operation after the other, and compare the results."""
    for seen in await run_clients([store], [program]):
        wanted = model.do(seen.operation)
        yes(
            same(seen.result, wanted),
            f"{where}: {seen.operation}: expected {wanted!r}, found {seen.result!r}",
        )


def checks_of(
    programs: Mapping[str, Sequence[Operation]], model: Callable[[], Model]
) -> Mapping[str, Callable[[Callable[[], Any]], Awaitable[None]]]:
    """Return one check for each program, which compares a new store with its model."""

    def check_of(name: str, program: Sequence[Operation]) -> Any:
        async def check(open_store: Callable[[], Any]) -> None:
            async with opened(open_store) as store:
                await compare(store, model(), program, name)

        check.__name__ = name.replace(",", "").replace(" ", "_")
        return check

    return {name: check_of(name, program) for name, program in programs.items()}


async def run_phases(
    stores: Sequence[object], *phases: Sequence[Sequence[Operation]]
) -> list[Seen]:
    """Run clients in several phases; each phase starts when the one before has ended."""
    seen: list[Seen] = []
    for phase in phases:
        latest = seen[-1].ended if seen else 0
        seen += [
            replace(one, began=one.began + latest, ended=one.ended + latest)
            for one in await run_clients(stores, phase)
        ]
    return seen


def explains(model: Model, seen: Sequence[Seen]) -> bool:
    """Return whether some sequential order of the operations explains every result.

    The order must agree with time: an operation that ended before another began comes first.
    """
    if not seen:
        return True
    first_end = min(one.ended for one in seen)
    for position, one in enumerate(seen):
        if one.began > first_end:
            continue
        then = copy.deepcopy(model)
        result = then.do(one.operation)
        if same(result, one.result) and explains(then, [*seen[:position], *seen[position + 1 :]]):
            return True
    return False


def same(left: object, right: object) -> bool:
    """Return whether two results of a store's method are equal, including nested values.

    A store promises the order of entries, but no order of an inbox.
    """
    return _whole(left) == _whole(right)


def _whole(result: object) -> object:
    """Return a result with values that ``==`` ignores, such as the lease on a call."""
    if isinstance(result, CallRecord):
        return result, result.asked, result.lease
    if isinstance(result, RoundRecord):
        return result, result.notes
    if isinstance(result, OpenedRound):
        held = (result.call, result.ended, result.entries)
        return result, [_whole(each) for each in held]
    if isinstance(result, list):
        return [_whole(each) for each in cast("list[object]", result)]
    if isinstance(result, dict):
        found = cast("dict[str, object]", result)
        is_inbox = any(isinstance(each, AnswerRecord) for each in found.values())
        return found if is_inbox else list(found.items())
    return result
