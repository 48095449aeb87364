"""When a round is over: every strand of the call waits for nothing but open asks.

Owns the classification of strands and nothing else. It only looks: cancelling and collecting are
``machine.py``'s.

A strand is *ready* (it will run), *blocked* (what it waits for can only come from other strands
of this call that are blocked, or from an open ask), *busy* (something outside the call will wake
it: a socket, a timer, a thread, a step) or *synchronising* (it waits at a lock, event, queue or
stream, which another strand or a stranger may release). The round is over when none is ready or
busy and, if any is synchronising, nothing has stirred for ``SETTLE`` seconds.

asyncio has no public answer to "what does this task wait for". ``Task._fut_waiter``,
``Future._callbacks`` and ``_GatheringFuture._children`` are used, as debuggers do; the tests run
every scenario on each supported Python, so that a change there is noticed by them and not by
users. A loop whose tasks lack them is refused when a call starts (:func:`check_support`).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from types import FrameType
from typing import Any, TypeAlias

from anabranch.call.strands import Strand, strand_of

__all__ = ["SETTLE", "Quiescence", "check_support"]

SETTLE = 0.05

_Future: TypeAlias = "asyncio.Future[Any]"


class _State(Enum):
    READY = auto()
    BLOCKED = auto()
    BUSY = auto()
    SYNCHRONISING = auto()


class Quiescence:
    """Watches the strands of one call during one round and calls ``on_quiet`` once.

    Tell it of every event through :meth:`stir`. It checks at the loop's next pass, only while
    asks are open, and starts with the strand that kept the round going last time, so that the
    cost of a check does not grow with the number of blocked strands while another one works.
    """

    def __init__(
        self,
        strands: dict[asyncio.Task[Any], Strand],
        parked: Callable[[], Iterable[_Future]],
        on_quiet: Callable[[], None],
    ) -> None:
        self._strands = strands
        self._parked = parked
        self._on_quiet = on_quiet
        self._loop = asyncio.get_running_loop()
        self._check_due = False
        self._witness: asyncio.Task[Any] | None = None
        self._watched: set[_Future] = set()
        self._settling: asyncio.TimerHandle | None = None
        self._relayed: set[_Future] | None = None
        self._stopped = False

    def stir(self, _: object = None) -> None:
        """Something happened: an ask parked, a strand began or ended, a future completed."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if not self._check_due and not self._stopped:
            self._check_due = True
            self._loop.call_soon(self._check)

    def stop(self) -> None:
        """Watch no longer; no callback or timer remains."""
        self._stopped = True
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        for future in self._watched:
            future.remove_done_callback(self._wake)
        self._watched.clear()

    def _wake(self, future: _Future) -> None:
        self._watched.discard(future)
        self.stir()

    def _watch(self, task: asyncio.Task[Any]) -> None:
        waiter: _Future | None = getattr(task, "_fut_waiter", None)
        if waiter is not None and waiter not in self._watched:
            self._watched.add(waiter)
            waiter.add_done_callback(self._wake)

    def _check(self) -> None:
        self._check_due = False
        if self._witness_is_ready():
            self.stir()
            return
        self._relayed = None
        own = {future for future in self._parked() if not future.done()}
        if self._stopped or not own:
            return
        busy: list[asyncio.Task[Any]] = []
        synchronising: list[asyncio.Task[Any]] = []
        for task in self._in_search_order():
            state = self._classify(task, own)
            if state is _State.READY:
                self._witness = task
                self.stir()
                return
            if state is _State.BUSY:
                busy.append(task)
                if task is self._witness:
                    break
            elif state is _State.SYNCHRONISING:
                synchronising.append(task)
        if busy:
            self._witness = busy[0]
            for task in busy:
                self._watch(task)
        elif synchronising:
            for task in synchronising:
                self._watch(task)
            self._settling = self._loop.call_later(SETTLE, self._settled)
        else:
            self._quiet()

    def _witness_is_ready(self) -> bool:
        strand = self._strands.get(self._witness) if self._witness is not None else None
        if strand is None or strand.effects or self._stopped:
            return False
        waiter: _Future | None = getattr(self._witness, "_fut_waiter", None)
        return waiter is None or waiter.done()

    def _in_search_order(self) -> Iterator[asyncio.Task[Any]]:
        witness = self._witness
        if witness is not None and witness in self._strands:
            yield witness
        for task in self._strands:
            if task is not witness:
                yield task

    def _settled(self) -> None:
        self._settling = None
        self._quiet()

    def _quiet(self) -> None:
        self.stop()
        self._on_quiet()

    def _classify(self, task: asyncio.Task[Any], own: set[_Future]) -> _State:
        strand = self._strands[task]
        waiter: _Future | None = getattr(task, "_fut_waiter", None)
        if strand.effects:
            return _State.BUSY
        if waiter is None or waiter.done():
            return _State.READY
        state = self._awaited([waiter], own)
        if state is not _State.BUSY or isinstance(waiter, asyncio.Task):
            return state
        found = self._look_inside(task, own)
        if found is not None:
            return found
        if self._relayed is None:
            self._relayed = _relayed_by([*own, *self._strands])
        # asyncio.shield and its like: the end of a strand, or of an ask, completes the future.
        return _State.BLOCKED if waiter in self._relayed else _State.BUSY

    def _awaited(self, futures: Iterable[_Future], own: set[_Future]) -> _State:
        """Classify a wait for ``futures``, all of them or any.

        When all have finished the strand is about to run; calling that blocked ends rounds early.
        """
        live = [future for future in futures if not future.done()]
        if not live:
            return _State.READY
        for future in live:
            if future in own or strand_of(future) is not None:
                continue
            children = getattr(future, "_children", None)
            if children is None:
                return _State.BUSY
            state = self._awaited(children, own)
            if state is not _State.BLOCKED:
                return state
        return _State.BLOCKED

    def _look_inside(self, task: asyncio.Task[Any], own: set[_Future]) -> _State | None:
        """Look where in asyncio or anyio the innermost frame of ``task`` waits, if it does."""
        frames = list(_frames(task))
        inner = frames[-1] if frames else None
        if inner is None:
            return None
        module = inner.f_globals.get("__name__", "")
        name = inner.f_code.co_name
        if module == "asyncio.tasks" and name in {"_wait", "wait_for"}:
            return self._awaited(_waited_for(inner), own)
        if name == "__aexit__" and module in {"asyncio.taskgroups", "anyio._backends._asyncio"}:
            group = inner.f_locals.get("self")
            return self._awaited(list(getattr(group, "_tasks", ())), own)
        if _is_synchronisation(module, name) and _is_called_by_author(frames):
            return _State.SYNCHRONISING
        return None


def _waited_for(frame: FrameType) -> list[_Future]:
    found = frame.f_locals.get("fs", frame.f_locals.get("fut"))
    if found is None:
        return []
    return [found] if asyncio.isfuture(found) else list(found)


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of what ``task`` awaits, outermost first."""
    current: Any = task.get_coro()
    while current is not None:
        for prefix in ("cr", "gi", "ag"):
            frame = getattr(current, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                attribute = "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await"
                current = getattr(current, attribute, None)
                break
        else:
            # An awaitable written in C (an async generator's asend) hides what it runs.
            current = _hidden(current)


def _hidden(awaitable: Any) -> Any:
    if type(awaitable).__name__ not in {"async_generator_asend", "async_generator_athrow"}:
        return None
    for held in gc.get_referents(awaitable):
        if hasattr(held, "ag_frame"):
            return held
    return None


_SYNCHRONISING_MODULES = {
    "asyncio.locks",
    "asyncio.queues",
    "anyio._core._synchronization",
    "anyio.streams.memory",
    "anyio._backends._asyncio",
}
_ASYNC_LIBRARIES = ("asyncio", "anyio")
_IO_LIBRARIES = (
    "aiohttp", "aiosqlite", "asyncpg", "h11", "h2", "httpcore", "httpcore2", "httpx", "httpx2",
    "mcp", "psycopg", "psycopg_pool", "redis", "sqlalchemy", "urllib3", "websockets",
)  # fmt: skip


def _is_synchronisation(module: str, name: str) -> bool:
    return module in _SYNCHRONISING_MODULES and name not in {"sleep", "run_sync_in_worker_thread"}


def _is_called_by_author(frames: list[FrameType]) -> bool:
    """Whether the nearest caller outside asyncio and anyio is no I/O library."""
    for frame in reversed(frames):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _ASYNC_LIBRARIES:
            return package not in _IO_LIBRARIES
    return False


def _relayed_by(sources: Iterable[_Future]) -> set[_Future]:
    """The futures that the end of one of ``sources`` completes, through a callback's closure."""
    relayed: set[_Future] = set()
    for source in sources:
        for callback, _ in getattr(source, "_callbacks", None) or ():
            for cell in getattr(callback, "__closure__", None) or ():
                try:
                    held = cell.cell_contents
                except ValueError:  # an empty cell
                    continue
                if asyncio.isfuture(held):
                    relayed.add(held)
    return relayed


def check_support() -> None:
    """Refuse a loop whose tasks do not show what they wait for.

    Raises:
        RuntimeError: the running task has no ``_fut_waiter``.
    """
    task = asyncio.current_task()
    if task is None or not hasattr(task, "_fut_waiter"):
        raise RuntimeError(
            "Rounds need asyncio's own tasks, which show what they wait for; this event loop's"
            " do not. Run the call on asyncio or uvloop."
        )
