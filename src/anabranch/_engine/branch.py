"""A timeline inside a call: where it stands in the tree of branches, and what it may still use.

Owns depth, budget, deadline, and folding: replacing a finished branch by its one value. Messages
are the author's view and live in ``context.py``.

Accounting is by path and is loaded before the body runs: what earlier rounds have spent counts
from the first moment, in whatever order a replay passes the recorded steps. So a replay refuses
nothing that was once allowed, and allows nothing that was once refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from anabranch._engine.codec import Codec
from anabranch._engine.journal import Entry
from anabranch._engine.strands import Scope, scope_in
from anabranch.errors import (
    BranchDepthError,
    BranchTimeoutError,
    BranchTokenError,
    SerializationError,
    error_from_json,
    error_to_json,
)
from anabranch.limits import Limits

if TYPE_CHECKING:
    from anabranch._engine.call import Call

__all__ = ["Branch"]

T = TypeVar("T")


class Branch:
    """One branch of a running call. ``limits`` is the tightest of all that enclose it."""

    __slots__ = (
        "_limit", "_over", "_task", "call", "depth", "expired", "ids", "limits", "max_tokens",
        "noticed", "parent", "path", "spent", "timeout",
    )  # fmt: skip

    def __init__(self, call: Call[Any], parent: Branch | None, path: str, own: Limits) -> None:
        self.call: Call[Any] = call
        self.parent: Branch | None = parent
        self.path: str = path
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.limits: Limits = own if parent is None else parent.limits.narrowed(own)
        self.max_tokens: int | None = own.max_tokens
        self.timeout: float | None = own.timeout
        self.spent: int = call.ledger.get(path, 0)
        self.expired: bool = False
        self.ids: list[str] = []
        self.noticed: list[str] = []
        self._limit: asyncio.Timeout | None = None
        self._over: asyncio.Event | None = None
        self._task: asyncio.Task[Any] | None = None

    # -- tokens ------------------------------------------------------------------------------

    def check_tokens(self, wanted: int) -> None:
        """Refuse to spend ``wanted`` tokens where any enclosing budget does not hold them.

        Raises:
            BranchTokenError: naming the innermost branch whose budget it is.
        """
        branch: Branch | None = self
        while branch is not None:
            budget = branch.max_tokens
            if budget is not None and branch.spent + wanted > budget:
                raise BranchTokenError(branch.path, branch.spent + wanted, budget)
            branch = branch.parent

    def remaining_tokens(self) -> int | None:
        """Return the least that any enclosing budget has left, ``None`` without a budget."""
        least: int | None = None
        branch: Branch | None = self
        while branch is not None:
            if branch.max_tokens is not None:
                left = max(0, branch.max_tokens - branch.spent)
                least = left if least is None else min(least, left)
            branch = branch.parent
        return least

    def settle(self, entry: Entry, tokens: int) -> None:
        """Charge what ``entry`` has cost to this branch and every ancestor, once.

        Raises:
            BranchTokenError: a budget is exceeded. The tokens stay charged and the error is the
                entry's outcome from now on, so that every replay ends the same way.
        """
        if entry.tokens is not None:
            return
        entry.tokens = tokens
        branch: Branch | None = self
        while branch is not None:
            branch.spent += tokens
            branch = branch.parent
        try:
            self.check_tokens(0)
        except BranchTokenError as error:
            entry.error = error_to_json(error)
            raise

    # -- running -----------------------------------------------------------------------------

    async def run_child(
        self,
        path: str,
        own: Limits,
        body: Callable[[Branch], Awaitable[T]],
        codec: Codec,
    ) -> T:
        """Run ``body`` in a sub-branch at ``path``, or return what it was folded to.

        The enclosing branch is the one that this is awaited in: its limits hold, whichever branch
        of the call has made the operation.

        Raises:
            BranchDepthError, BranchTimeoutError: before or while the body runs.
            Exception: whatever the body raises.
        """
        call = self.call
        scope = scope_in(call)
        enclosing = scope.branch
        folded = call.recall(path, "branch", "")
        if folded is not None:
            enclosing.ids.append(path)
            if folded.error is not None:
                raise error_from_json(folded.error)
            return codec.decode(path, folded.value)  # type: ignore[no-any-return]
        if call.closing:
            await call.refuse(path)
        call.unentered.discard(path)
        branch = Branch(call, enclosing, path, own)
        max_depth = branch.limits.max_depth
        if max_depth is not None and branch.depth > max_depth:
            raise BranchDepthError(branch.depth, max_depth)
        # What is kept inside ends with the branch: of a folded one nothing would be there, either.
        scope.strand.scope = Scope(scope.strand, branch, path, scope.memory)
        try:
            try:
                value = await branch.run(body)
            finally:
                scope.strand.scope = scope
        except asyncio.CancelledError:
            if not call.suspending:
                call.cancelled.add(path)
            enclosing.keep(branch)
            raise
        except Exception as error:
            known = error_to_json(error)
            if known is None or not branch._fold(Entry("branch", "", error=known), enclosing):
                enclosing.keep(branch)
            raise
        encoded, again = _crossed(path, value, codec)
        if encoded is None or not branch._fold(encoded, enclosing):
            enclosing.keep(branch)
            return value
        return again  # what every replay will see

    def run(self, body: Callable[[Branch], Awaitable[T]]) -> Awaitable[T]:
        """Return what runs ``body`` as this branch, in the current strand, until its deadline."""
        # No coroutine around the body unless it is of use: each stays for as long as the branch.
        return body(self) if self.timeout is None else self._run_until_deadline(body, self.timeout)

    async def _run_until_deadline(
        self, body: Callable[[Branch], Awaitable[T]], timeout: float
    ) -> T:
        call = self.call
        deadlines = call.journal.deadlines
        deadline = deadlines.setdefault(self.path, call.clock.now() + timeout)
        if deadline is None:  # done in time in an earlier round; only replayed now
            return await body(self)
        self._task = asyncio.current_task()
        self._over = asyncio.Event()
        try:
            async with asyncio.timeout(None) as self._limit:
                if call.clock.now() >= deadline:
                    self.expired = True
                    value = await body(self)
                else:
                    timer = call.clock.call_at(deadline, self._on_deadline)
                    try:
                        value = await body(self)
                    finally:
                        timer.cancel()
        except Exception as error:
            if self.expired:
                cause = None if isinstance(error, TimeoutError) else error
                raise BranchTimeoutError(self.path, timeout) from cause
            raise
        finally:
            self._over.set()
        if self.expired:  # it came to its end, but by an answer that was too late
            raise BranchTimeoutError(self.path, timeout)
        return value

    def _on_deadline(self) -> None:
        """Stop the body; but let a replay first pass what is recorded, so that undos are bound."""
        self.expired = True
        if not self.call.is_replaying(self.path):
            self._fire()

    def _fire(self) -> None:
        if self._limit is not None and not self._is_fired():
            self._limit.reschedule(asyncio.get_running_loop().time())

    def _is_fired(self) -> bool:
        return self._limit is not None and self._limit.expired()

    async def stop(self) -> NoReturn:
        """End the body, and with it this strand: the deadline has passed.

        Raises:
            asyncio.CancelledError: the strand is the body's own, or ends together with it.
            BranchTimeoutError: the strand goes on without the body (nobody waits for it), or the
                body has swallowed its cancellation.
        """
        swallowed = self._is_fired() and asyncio.current_task() is self._task
        self._fire()
        if self._over is not None and not swallowed:
            await self._over.wait()
        raise BranchTimeoutError(self.path, self.timeout or 0)

    # -- folding -----------------------------------------------------------------------------

    def _fold(self, entry: Entry, into: Branch) -> bool:
        """Replace all that was recorded inside by ``entry``; false if that would lose an undo."""
        call, journal = self.call, self.call.journal
        if call.closing:  # the round has ended: what a body does now is not part of the call
            return False
        inner = set(self.ids)
        if call.cancelled or entry.error is not None:
            inner.update(call.unreached(self.path))
        if journal.owed and not call.undos.can_fold(inner):
            return False
        journal.fold(inner)
        for path in (self.path, *self.noticed):
            journal.delivered.pop(path, None)
            journal.deadlines.pop(path, None)
        entry.tokens = self.spent
        call.record(self.path, entry, into)
        return True

    def keep(self, branch: Branch) -> None:
        """The entries of ``branch`` stay; they are part of this branch now."""
        if self.call.closing:
            return
        self.ids += branch.ids
        self.noticed += (branch.path, *branch.noticed)
        if branch.path in self.call.journal.deadlines and not branch.expired:
            self.call.journal.deadlines[branch.path] = None


def _crossed(path: str, value: T, codec: Codec) -> tuple[Entry | None, T]:
    """Return the entry of ``value`` and what it reads back as; no entry if that is not the same."""
    try:
        encoded = codec.encode(path, value)
        again: T = codec.decode(path, encoded)
        same = type(again) is type(value) and bool(again == value)
    except (SerializationError, TypeError, ValueError):  # the last two: of a comparison
        return None, value
    return (Entry("branch", "", encoded) if same else None), again
