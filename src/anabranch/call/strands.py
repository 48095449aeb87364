"""Which task is where in a call, and hence what its next step is called.

Owns strands (the tasks of a call), scopes (where a strand is: in which branch, under which path)
and the loop-wide task factory that learns of every task a strand starts. It knows nothing of
journals or asks.

Identity must not depend on timing. A scope counts its own steps, in the order in which its code
makes them; a task started inside a scope gets a scope of its own, named after its coroutine and
counted within the one that started it. So two tasks that run at once never share a counter:

    book_flight/elicit.1                 the tool's first unnamed question
    book_flight/analyze#2/sample.1       in the second sub-branch named ``analyze``
    book_flight/~worker#1/elicit.1       in a task that the tool started itself
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.errors import NonDeterminismError

if TYPE_CHECKING:
    from anabranch.call.branch import Branch
    from anabranch.call.machine import Call

__all__ = ["Scope", "Strand", "current_scope", "install_task_factory", "strand_of"]

_Coro: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class Scope:
    """A place in the call's program: a branch, the path that names it, and its counters.

    ``memory`` holds what the author's view of a branch keeps per scope; a new strand starts with
    a copy of its parent's, as with context variables.
    """

    __slots__ = ("_random", "branch", "counters", "memory", "path", "strand")

    def __init__(
        self, strand: Strand, branch: Branch, path: str, memory: dict[object, Any] | None = None
    ) -> None:
        self.strand = strand
        self.branch = branch
        self.path = path
        self.counters: dict[str, int] = {}
        self.memory: dict[object, Any] = memory if memory is not None else {}
        self._random: random.Random | None = None

    @property
    def random(self) -> random.Random:
        """Randomness that is the same in every replay: seeded by the call's id and this path."""
        if self._random is None:
            self._random = random.Random(f"{self.strand.call.journal.call_id}:{self.path}")
        return self._random

    def count(self, name: str) -> int:
        """Return how often ``name`` has been used here, this time included."""
        number = self.counters.get(name, 0) + 1
        self.counters[name] = number
        return number


class Strand:
    """One task of a call.

    ``scope`` is where it is now, ``path`` where it started. ``effects`` counts the steps it is
    inside of: while one runs, the strand is busy whatever it waits for, and tasks started there
    are not strands. ``racing`` says that it may be dropped in favour of a winner. ``unordered``
    says that the task was started from a set, so that its name is an accident.
    """

    __slots__ = ("call", "effects", "path", "racing", "scope", "task", "unordered")

    def __init__(self, call: Call, task: asyncio.Task[Any]) -> None:
        self.call = call
        self.task = task
        self.scope: Scope
        self.path = ""
        self.effects = 0
        self.racing = False
        self.unordered = False


_strands: dict[asyncio.Task[Any], Strand] = {}


def strand_of(task: object) -> Strand | None:
    """Return the strand that ``task`` is, if it is one that has not ended."""
    return _strands.get(task)  # type: ignore[call-overload, no-any-return]


def current_scope() -> Scope:
    """Return where the running task is.

    Raises:
        NonDeterminismError: the code does not run in a task of a call, so that nothing it does
            could be named: a thread, a bare loop callback, or a task made by somebody else.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    strand = _strands.get(task) if task is not None else None
    if strand is None or strand.effects:
        if task is None:
            where = "outside any task (a thread or a loop callback)"
        elif strand is not None:
            where = "inside a step's function"
        elif asyncio.get_running_loop().get_task_factory() is not None and _factory_replaced():
            where = f"in task {task.get_name()!r}, after the loop's task factory was replaced"
        else:
            where = f"in task {task.get_name()!r}, which no task of the call has started"
        raise NonDeterminismError("ctx", "use from the tool's own tasks", f"use {where}")
    return strand.scope


def adopt(
    call: Call, coroutine: Coroutine[Any, Any, Any], branch: Branch
) -> asyncio.Task[Any]:
    """Start the root strand of ``call``."""
    loop = asyncio.get_running_loop()
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop)
    strand = Strand(call, task)
    strand.path = branch.path
    strand.scope = Scope(strand, branch, branch.path)
    _register(strand)
    return task


def _register(strand: Strand) -> None:
    _strands[strand.task] = strand
    strand.call.strands[strand.task] = strand
    strand.task.add_done_callback(_unregister)


def _unregister(task: asyncio.Task[Any]) -> None:
    strand = _strands.pop(task)
    del strand.call.strands[task]
    strand.call.strand_ended(strand)


class _Factory:
    """A task factory that registers what strands start and passes all else on."""

    def __init__(self, previous: Callable[..., Any] | None) -> None:
        self.previous = previous

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: _Coro,
        *,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Future[Any]:
        parent = _strands.get(asyncio.current_task(loop))  # type: ignore[arg-type]
        tracked = parent is not None and not parent.effects
        if context is not None:
            options["context"] = context
        if self.previous is not None and not (tracked and _is_eager(self.previous)):
            made = self.previous(loop, coro, **options)
        else:
            # A strand must be registered before its first step, so it never starts eagerly.
            options.pop("eager_start", None)
            made = asyncio.Task(coro, loop=loop, **options)  # type: ignore[arg-type]
        if parent is not None and tracked and isinstance(made, asyncio.Task):
            _branch_off(parent, made, coro)
        return made  # type: ignore[no-any-return]


def _branch_off(parent: Strand, task: asyncio.Task[Any], coro: _Coro) -> None:
    scope = parent.scope
    name = getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2]
    strand = Strand(parent.call, task)
    strand.racing = parent.racing
    strand.unordered = parent.unordered or _started_from_a_set()
    path = f"{scope.path}/~{name}#{scope.count('~' + name)}"
    strand.path = path
    strand.scope = Scope(strand, scope.branch, path, dict(scope.memory) if scope.memory else None)
    _register(strand)


def _started_from_a_set() -> bool:
    """Whether ``asyncio.as_completed`` is starting this task: it iterates over a set."""
    frame = sys._getframe(3)
    for _ in range(6):
        if frame.f_globals.get("__name__") not in {"asyncio.tasks", "asyncio.base_events"}:
            return False
        if frame.f_code.co_name == "as_completed" or "_AsCompletedIterator" in _qualname(frame):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def _qualname(frame: Any) -> str:
    return frame.f_code.co_qualname  # type: ignore[no-any-return]


def _is_eager(factory: Callable[..., Any]) -> bool:
    return "eager" in getattr(factory, "__qualname__", "")


def _factory_replaced() -> bool:
    return not isinstance(asyncio.get_running_loop().get_task_factory(), _Factory)


def install_task_factory() -> None:
    """Make the running loop tell of new tasks. Idempotent; wraps the factory that is there.

    It stays: removing it could only be wrong for a call that runs at the same time, and tasks
    that no strand starts cost one dictionary look-up each.

    Raises:
        RuntimeError: no asyncio loop is running (trio and others are not supported).
    """
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _Factory):
        loop.set_task_factory(_Factory(factory))
