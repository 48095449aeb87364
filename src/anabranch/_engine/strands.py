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
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.errors import NonDeterminismError

if TYPE_CHECKING:
    from anabranch._engine.branch import Branch
    from anabranch._engine.call import Call

__all__ = [
    "Scope",
    "Strand",
    "current_scope",
    "current_strand",
    "forget",
    "install_task_factory",
    "scope_in",
    "strand_of",
]

_Coro: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


_NOTHING: Mapping[object, Any] = {}


class Scope:
    """A place in the call's program: a branch, the path that names it, and its counters.

    ``memory`` holds what the author's view of a branch keeps per scope; a new strand starts with
    its parent's, as with context variables. So it is replaced and never changed. ``unordered``
    says that ``path`` is an accident, because the task was started from a set: nothing can be
    named here.
    """

    __slots__ = ("_counters", "_random", "branch", "memory", "path", "strand", "unordered")

    def __init__(
        self, strand: Strand, branch: Branch, path: str, memory: Mapping[object, Any] = _NOTHING
    ) -> None:
        self.strand: Strand = strand
        self.branch: Branch = branch
        self.path: str = path
        self.memory: Mapping[object, Any] = memory
        self.unordered: bool = False
        self._counters: dict[str, int] | None = None  # most of thousands of scopes count nothing
        self._random: random.Random | None = None

    @property
    def random(self) -> random.Random:
        """Randomness that is the same in every replay: seeded by the call's id and this path.

        Raises:
            NonDeterminismError: the path is not the same in every replay.
        """
        if self._random is None:
            self.check_order("random")
            seed = f"{self.strand.call.journal.call_id}:{self.path}"
            self._random = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        return self._random

    def check_order(self, name: str) -> None:
        """Refuse to name anything in a task whose own name differs from run to run.

        Raises:
            NonDeterminismError: the task was started from a set.
        """
        if self.unordered:
            raise NonDeterminismError(
                f"{self.path}/{name}",
                "tasks started in an order of their own",
                "asyncio.as_completed over coroutines, which starts them from a set: pass it"
                " ctx operations or tasks, or give key=",
            )

    def count(self, name: str) -> int:
        """Return how often ``name`` has been used here, this time included."""
        counters = self._counters
        if counters is None:
            counters = self._counters = {}
        number = counters.get(name, 0) + 1
        counters[name] = number
        return number

    def counted(self, name: str) -> int:
        """Return how often ``name`` has been used here."""
        return self._counters.get(name, 0) if self._counters else 0


class Strand:
    """One task of a call.

    ``scope`` is where it is now, ``path`` where it started. ``effects`` counts the steps it is
    inside of: while one runs, the strand is busy whatever it waits for, and tasks started there
    are not strands. ``racing`` says that it may be dropped in favour of a winner.
    """

    __slots__ = ("call", "effects", "path", "racing", "scope", "task")

    def __init__(self, call: Call[Any], task: asyncio.Task[Any]) -> None:
        self.call: Call[Any] = call
        self.task: asyncio.Task[Any] = task
        self.scope: Scope
        self.path: str = ""
        self.effects: int = 0
        self.racing: bool = False


_strands: dict[asyncio.Task[Any], Strand] = {}


def strand_of(task: object) -> Strand | None:
    """Return the strand that ``task`` is, if it is one that has not ended."""
    return _strands.get(task)  # type: ignore[call-overload,no-any-return]  # pyright: ignore[reportArgumentType] - any object may be asked for


def current_strand() -> Strand:
    """Return the strand that is running.

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
        raise NonDeterminismError("ctx", "use from the tool's own tasks", _misuse(task, strand))
    return strand


def current_scope() -> Scope:
    """Return where the running strand is.

    Raises:
        NonDeterminismError: as :func:`current_strand`.
    """
    return current_strand().scope


def scope_in(call: Call[Any]) -> Scope:
    """Return where the running strand is, which must be one of ``call``.

    Raises:
        NonDeterminismError: as :func:`current_strand`; or the strand is another call's.
    """
    strand = current_strand()
    if strand.call is not call:
        expected = f"use in call {call.journal.call_id!r}"
        raise NonDeterminismError("ctx", expected, "use in another call")
    return strand.scope


def _misuse(task: asyncio.Task[Any] | None, strand: Strand | None) -> str:
    if task is None:
        return "use outside any task (a thread or a loop callback)"
    if strand is not None:
        return "use inside a step's function"
    if not isinstance(asyncio.get_running_loop().get_task_factory(), _Factory):
        return f"use in task {task.get_name()!r}, after the loop's task factory was replaced"
    return f"use in task {task.get_name()!r}, which no task of the call has started"


def adopt(
    call: Call[Any], coroutine: Coroutine[Any, Any, Any], branch: Branch
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
    # The call's own context, or asyncio would copy the current one for every single task.
    strand.task.add_done_callback(forget, context=strand.call.context)


def forget(task: asyncio.Task[Any]) -> None:
    """Unregister a strand that has ended: called by the loop, or by a call that cannot wait."""
    strand = _strands.pop(task, None)
    if strand is not None:
        del strand.call.strands[task]
        strand.call.strand_ended(strand)


class _Factory:
    """A task factory that registers what strands start and passes all else on."""

    def __init__(self, previous: Callable[..., asyncio.Future[Any]] | None) -> None:
        self.previous = previous

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: _Coro,
        *,
        context: Context | None = None,
        **options: Any,  # noqa: ANN401 - whatever this Python's tasks take
    ) -> asyncio.Future[Any]:
        if context is not None:
            options["context"] = context
        parent = strand_of(asyncio.current_task(loop))
        if parent is None or parent.effects:
            return self._make(loop, coro, options)
        # A strand must be registered before its first step, so it never starts eagerly.
        options.pop("eager_start", None)
        if self.previous is not None and _is_eager(self.previous):
            made = _plain_task(loop, coro, options)
        else:
            made = self._make(loop, coro, options)
        if isinstance(made, asyncio.Task):
            _branch_off(parent, made, coro)
        return made

    def _make(
        self, loop: asyncio.AbstractEventLoop, coro: _Coro, options: dict[str, Any]
    ) -> asyncio.Future[Any]:
        if self.previous is not None:
            return self.previous(loop, coro, **options)
        return _plain_task(loop, coro, options)


def _plain_task(
    loop: asyncio.AbstractEventLoop, coro: _Coro, options: dict[str, Any]
) -> asyncio.Future[Any]:
    return asyncio.Task(coro, loop=loop, **options)


def _branch_off(parent: Strand, task: asyncio.Task[Any], coro: _Coro) -> None:
    scope = parent.scope
    name = getattr(coro, "__qualname__", type(coro).__name__).rpartition(".")[2]
    strand = Strand(parent.call, task)
    strand.racing = parent.racing
    path = f"{scope.path}/~{name}#{scope.count('~' + name)}"
    strand.path = path
    strand.scope = Scope(strand, scope.branch, path, scope.memory)
    strand.scope.unordered = scope.unordered or _started_from_a_set()
    _register(strand)


def _started_from_a_set() -> bool:
    """Whether ``asyncio.as_completed`` is starting this task: it iterates over a set."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - only the caller's frames tell
    while frame is not None and frame.f_globals.get("__name__") in _STARTERS:
        if "as_completed" in frame.f_code.co_name or "_AsCompleted" in frame.f_code.co_qualname:
            return True
        frame = frame.f_back
    return False


_STARTERS = {"asyncio.tasks", "asyncio.base_events"}


def _is_eager(factory: Callable[..., Any]) -> bool:
    return "eager" in getattr(factory, "__qualname__", "")


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
