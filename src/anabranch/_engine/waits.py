"""The waits of tasks and futures, read from the private state of asyncio.

asyncio has no public answer to this question. ``asyncio.capture_call_graph`` (Python 3.14) answers
the reverse one, which tasks await a known future: a wait for an ask *and* for something unknown
looks there like a wait for the ask alone. Its call stacks also end at the first async generator
(python/cpython#156980). So every Python is read the same way, as debuggers do it:
``Task._fut_waiter``, ``Future._callbacks`` and the ``_children`` of ``asyncio.gather``. Each reader
returns an empty result where the state is missing; ``canary.py`` runs known waits and refuses a
runtime on which one of them is misread.

Nothing here changes anything or decides anything: ``strand_states.py`` draws the conclusions.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

AnyFuture: TypeAlias = "asyncio.Future[Any]"
AnyTask: TypeAlias = "asyncio.Task[Any]"


def waiter_of(task: AnyTask) -> AnyFuture | None:
    """Return the future that wakes ``task``, or ``None`` if the task is about to run."""
    return getattr(task, "_fut_waiter", None)


def children_of(future: AnyFuture) -> Iterable[AnyFuture]:
    """Return the futures that ``future`` gathers if ``asyncio.gather`` made it, else nothing."""
    return getattr(future, "_children", ())


def shielded_by(future: AnyFuture) -> list[AnyFuture]:
    """Return the future that ``future`` shields if ``asyncio.shield`` made it, else nothing."""
    for callback, _ in _callbacks_of(future):
        if getattr(callback, "__qualname__", "") == "shield.<locals>._outer_done_callback":
            return list(_held_by(callback))
    return []


def relays(sources: Iterable[AnyFuture]) -> dict[AnyFuture, AnyFuture]:
    """Map each future that a done callback of another one completes to that other future.

    The callback's closure, or its ``functools.partial``, holds the future. The search starts at
    ``sources`` and follows the futures it finds.
    """
    found: dict[AnyFuture, AnyFuture] = {}
    known = set(sources)
    todo = deque(known)
    while todo:
        source = todo.popleft()
        for callback, _ in _callbacks_of(source):
            for held in _held_by(callback):
                if held not in known:
                    known.add(held)
                    found[held] = source
                    todo.append(held)
    return found


def is_bare(future: AnyFuture) -> bool:
    """Whether ``future`` shows no sign of a thread or a library that will complete it."""
    if type(future) is not asyncio.Future:
        return False
    return not any(
        getattr(callback, "__module__", None) == "asyncio.futures"  # chained to a thread's future
        for callback, _ in _callbacks_of(future)
    )


def _held_by(callback: object) -> Iterator[AnyFuture]:
    if isinstance(callback, functools.partial):
        yield from filter(asyncio.isfuture, callback.args)
        return
    for cell in getattr(callback, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if asyncio.isfuture(held):
            yield held


def _callbacks_of(future: AnyFuture) -> Iterable[tuple[object, object]]:
    return getattr(future, "_callbacks", None) or ()
