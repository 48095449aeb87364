"""Several clients on one store, and the search for an order that explains what they saw.

A store is linearizable if some order of the operations, one after the other, explains every result;
the order must agree with time.
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
    """One call of a method of a store."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw: an operation, when it began and ended (in ticks), and what it returned."""

    operation: Operation
    began: int
    ended: int
    result: object


class Model(Protocol):
    def do(self, operation: Operation) -> object: ...


async def run_clients(
    stores: Sequence[object], clients: Sequence[Sequence[Operation]]
) -> list[Seen]:
    """Let clients work at the same time, each on its operations in turn; return what they saw.

    Client ``n`` uses store ``n`` modulo their number.
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
    """Do a program in a store and in its model, one operation after the other."""
    for seen in await run_clients([store], [program]):
        wanted = model.do(seen.operation)
        yes(
            same(seen.result, wanted),
            f"{where}: {seen.operation}: expected {wanted!r}, found {seen.result!r}",
        )


def checks_of(
    programs: Mapping[str, Sequence[Operation]], model: Callable[[], Model]
) -> Mapping[str, Callable[[Callable[[], Any]], Awaitable[None]]]:
    """Return the checks that a new store does in each program what its model does."""

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
    """Let clients work in several phases, each of which begins when the one before has ended."""
    seen: list[Seen] = []
    for phase in phases:
        latest = seen[-1].ended if seen else 0
        seen += [
            replace(one, began=one.began + latest, ended=one.ended + latest)
            for one in await run_clients(stores, phase)
        ]
    return seen


def explains(model: Model, seen: Sequence[Seen]) -> bool:
    """Whether some order of the operations explains every result (linearizability).

    The order must agree with time: what had ended before another began comes first.
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
    """Whether two results of a method of a store are the same, with all that they hold.

    The order of entries is a promise; that of an inbox is none.
    """
    return _whole(left) == _whole(right)


def _whole(result: object) -> object:
    """Return a result with what is not compared otherwise, such as the lease on a call."""
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
