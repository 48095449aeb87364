"""Several clients on one store, and the search for an order that explains what they saw.

A store is linearizable if some order of the operations, one after the other, explains every result;
the order must agree with time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from anabranch._durable.store import OpenedRound
from anabranch.errors import StoreError

__all__ = ["Model", "Operation", "Seen", "explains", "run_clients"]


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
    """A plain model of a kind of store."""

    def do(self, operation: Operation) -> object:
        """Do one operation; a ``StoreError`` is returned as its type."""
        ...


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
        if _same(result, one.result) and explains(then, [*seen[:position], *seen[position + 1 :]]):
            return True
    return False


def _same(left: object, right: object) -> bool:
    if isinstance(left, OpenedRound) and isinstance(right, OpenedRound):
        return _same(left.entries, right.entries) and left == right
    if isinstance(left, dict) and isinstance(right, dict):  # the order of entries is a promise
        return list(left.items()) == list(right.items())  # pyright: ignore[reportUnknownArgumentType]
    return left == right
