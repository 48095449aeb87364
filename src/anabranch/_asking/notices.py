"""``ctx.log`` and ``ctx.notify``: the methods of ``BranchContext`` that report to the client."""

from __future__ import annotations

from typing import get_args

from anabranch._asking.combinators import Op, OperationsContext
from anabranch._engine import Notice
from anabranch.messages import LogLevel

_LEVELS: tuple[str, ...] = get_args(LogLevel)


def log(self: OperationsContext, level: LogLevel, message: str) -> Op[None]:
    """Send a log line to the client, once.

    Raises:
        ValueError: ``level`` is not one of the protocol's.
    """
    if level not in _LEVELS:
        raise ValueError(f"{level!r} is no log level; use one of {', '.join(_LEVELS)}")
    return _notice(self, Notice(message, level=level))


def notify(
    self: OperationsContext,
    message: str,
    progress: float | None = None,
    total: float | None = None,
) -> Op[None]:
    """Report to the client how far the call is, once; without ``progress``, as a count."""
    return _notice(self, Notice(message, progress=progress, total=total))


def _notice(self: OperationsContext, notice: Notice) -> Op[None]:
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    return call.scheduler.made(call.operations.notify(call.scheduler.scope(), notice))
