"""Strands: the tasks of a call, their scopes, and the loop-wide task factory that registers each.

A scope names each step after its place in the program, and not after its time. A task that starts
inside a scope gets a new scope, so two tasks that run concurrently never share a counter:

    book_flight/elicit.1                 the tool's first unnamed question
    book_flight/analyze#2/sample.1       in the second sub-branch named ``analyze``
    book_flight/~worker#1/elicit.1       in a task that the tool started itself

The factory guards tasks that a call starts, or that close a dropped generator, so that no exit in
them ends the loop (``functions.py``). The factory leaves every other task alone.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from types import FrameType
from typing import Any, Protocol, TypeAlias

from anabranch._engine.branch import Branch
from anabranch._engine.functions import Guarded, runs_authors_code
from anabranch.errors import ContextUseError

OWN_TASKS = "in the tasks of the tool's function"
"""The places where ``ctx`` can be used, for a :class:`ContextUseError`."""


_NOTHING: Mapping[object, Any] = {}


class Scope:
    """The place of one strand (a task of the call) in the call's program.

    A new strand starts with its parent's ``memory``, as with context variables, so a mapping is
    replaced and never changed. An ``unordered`` task was started from a set: its ``path`` is an
    accident, and names no step.
    """

    __slots__ = (
        "_counters",
        "branch",
        "memory",
        "path",
        "randomness",
        "seed",
        "steps",
        "unordered",
    )

    def __init__(self, branch: Branch, path: str, memory: Mapping[object, Any] = _NOTHING) -> None:
        self.branch: Branch = branch
        self.path: str = path
        self.memory: Mapping[object, Any] = memory
        self.unordered: bool = False
        self.steps: int = 0
        self._counters: dict[str, int] | None = None  # most of thousands of scopes count nothing
        self.seed: str | None = None
        self.randomness: random.Random | None = None

    def child(self, name: str, *, unordered: bool) -> Scope:
        made = Scope(self.branch, f"{self.path}/~{name}#{self.count('~' + name)}", self.memory)
        made.unordered = unordered or self.unordered
        return made

    def check_order(self, name: str) -> None:
        """Refuse to name a step in a task that was started from a set: its name differs from run to run."""
        if self.unordered:
            raise ContextUseError(
                f"{self.path}/{name}",
                "in tasks that the function starts in a fixed order",
                "in a coroutine that asyncio.as_completed started, in the order of a set",
                "Pass ctx operations or tasks to as_completed, or give each operation a key=.",
            )

    def count(self, name: str) -> int:
        """Return how often ``name`` has been used here, this time included."""
        counters = self._counters
        if counters is None:
            counters = self._counters = {}
        number = counters.get(name, 0) + 1
        counters[name] = number
        return number


_Coro: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class StrandOwner(Protocol):
    """The scheduler of one call's strands, and the context of their done callbacks."""

    strands: dict[asyncio.Task[Any], Strand]
    context: Context  # without it, asyncio would copy one for every task

    def strand_ended(self, strand: Strand) -> None:
        """Record that ``strand`` has ended, after its removal from ``strands``."""
        ...


class Strand:
    """One task of a call.

    Attributes:
        path: path of the scope in which the strand started.
        effects: number of steps around the running code. Inside a step, the strand is busy whatever
            it waits for, and tasks started there are no strands.
        racing: whether a race may drop the strand in favour of a winner.
    """

    __slots__ = ("effects", "owner", "path", "racing", "scope", "task")

    def __init__(
        self, owner: StrandOwner, task: asyncio.Task[Any], scope: Scope, *, racing: bool = False
    ) -> None:
        self.owner: StrandOwner = owner
        self.task: asyncio.Task[Any] = task
        self.scope: Scope = scope
        self.path: str = scope.path
        self.effects: int = 0
        self.racing: bool = racing


strand_of_task: dict[object, Strand] = {}


def current_strand() -> Strand:
    """Return the running strand; refuse a thread, a loop callback or a foreign task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    strand = strand_of_task.get(task)
    # A step that asked would leave its question without a place in the record:
    # test_a_step_cannot_ask.
    if strand is None or strand.effects:
        raise ContextUseError("ctx", OWN_TASKS, *_misuse(task, strand))
    return strand


def _misuse(task: asyncio.Task[Any] | None, strand: Strand | None) -> tuple[str, str]:
    """Return the place at which ``ctx`` was used, and the remedy."""
    if task is None:
        place = "outside any task (in a thread or a loop callback)"
        return place, "Use ctx in the tool's function, or in a task that the function starts."
    if strand is not None:
        return "inside a step's function", "Ask, and run other steps, before or after the step."
    place = f"in task {task.get_name()!r}"
    if not isinstance(asyncio.get_running_loop().get_task_factory(), _Factory):
        return (
            f"{place} after the loop's task factory was replaced",
            "Leave the task factory of the event loop unchanged while a tool runs.",
        )
    return (
        f"{place}, which no task of the call has started",
        "Use ctx before the function returns, in tasks that the function starts.",
    )


def register(strand: Strand) -> None:
    task, owner = strand.task, strand.owner
    strand_of_task[task] = strand
    owner.strands[task] = strand
    task.add_done_callback(forget, context=owner.context)


def forget(task: asyncio.Task[Any]) -> None:
    """Unregister the strand of ``task``, which has ended, and report its end to the owner."""
    strand = strand_of_task.pop(task, None)
    if strand is not None:
        del strand.owner.strands[task]
        strand.owner.strand_ended(strand)


class _Factory:
    """A task factory that registers the tasks of strands, and passes all other tasks on."""

    def __init__(self, previous: Callable[..., asyncio.Future[Any]] | None) -> None:
        self.previous = previous

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: _Coro,
        *,
        context: Context | None = None,
        **options: Any,  # noqa: ANN401 - the arguments of this Python's tasks
    ) -> asyncio.Future[Any]:
        if context is not None:
            options["context"] = context
        parent = strand_of_task.get(asyncio.current_task(loop))
        if (
            parent is not None
            or runs_authors_code.get()
            or type(coro).__name__ == _CLOSES_GENERATOR
        ):
            coro = Guarded(coro)  # a guard has the name of its coroutine
        # A step's own tasks would be cancelled at the end of the round if they were strands:
        # test_tasks_started_by_a_step_are_no_strands.
        if parent is None or parent.effects:
            return self._make(loop, coro, options)
        # A strand must be registered before its first step, so it never starts eagerly.
        options.pop("eager_start", None)
        # An eager factory would run the task before it has a name:
        # test_an_eager_factory_does_not_start_a_strand_before_it_is_known.
        if self.previous is not None and "eager" in getattr(self.previous, "__qualname__", ""):
            made = _plain_task(loop, coro, options)
        else:
            made = self._make(loop, coro, options)
        if isinstance(made, asyncio.Task):
            name = getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2]
            # The order of a set differs in a replay, and so would the names of steps:
            # test_a_task_started_from_a_set_cannot_be_named.
            scope = parent.scope.child(name, unordered=_started_from_a_set())
            # A racing strand's tasks race as well, so that their undos need a name:
            # test_in_a_race_a_step_with_an_undo_must_be_found_by_name.
            register(Strand(parent.owner, made, scope, racing=parent.racing))
        return made

    def _make(
        self, loop: asyncio.AbstractEventLoop, coro: _Coro, options: dict[str, Any]
    ) -> asyncio.Future[Any]:
        # A debugger's or tracer's own factory would be bypassed:
        # test_the_previous_task_factory_still_makes_the_tasks.
        if self.previous is not None:
            return self.previous(loop, coro, **options)
        return _plain_task(loop, coro, options)


_CLOSES_GENERATOR = "async_generator_athrow"
"""The type of the awaitable with which the loop closes a dropped generator of an author."""


def _plain_task(
    loop: asyncio.AbstractEventLoop, coro: _Coro, options: dict[str, Any]
) -> asyncio.Future[Any]:
    return asyncio.Task(coro, loop=loop, **options)


def _started_from_a_set() -> bool:
    """Whether ``asyncio.as_completed``, which iterates over a set, is starting this task."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - only the caller's waits show it
    while frame is not None and frame.f_globals.get("__name__") in _STARTERS:
        if "as_completed" in frame.f_code.co_name or "_AsCompleted" in frame.f_code.co_qualname:
            return True
        frame = frame.f_back
    return False


_STARTERS = {"asyncio.tasks", "asyncio.base_events"}


def install_task_factory() -> None:
    """Wrap the loop's task factory, once; the new one stays, since other calls may run meanwhile."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _Factory):
        loop.set_task_factory(_Factory(factory))
