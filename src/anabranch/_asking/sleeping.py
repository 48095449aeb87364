"""``ctx.sleep_until`` and ``ctx.sleep``: the methods of ``BranchContext`` that wait for a time.

To the call a sleep is an ask that the clock answers: where a call can wait between rounds, nothing of
it is alive meanwhile, however long it sleeps.
"""

from __future__ import annotations

import math
from datetime import datetime

from anabranch._asking.combinators import Op, OperationsContext


def sleep_until(self: OperationsContext, when: datetime) -> Op[None]:
    """Return once it is ``when``, at once if it has been: after minutes, or weeks.

    In a ``race`` it is a time limit on what is asked; what is answered later comes too late.

    Raises:
        ValueError: ``when`` has no time zone, so that it is another time on another machine.
    """
    if when.utcoffset() is None:
        raise ValueError(
            f"sleep_until() takes a time with its zone, got {when.isoformat()}:"
            " write datetime(…, tzinfo=UTC), or begin with ctx.now()"
        )
    return _slept(self, when.timestamp())


def sleep(self: OperationsContext, seconds: float) -> Op[None]:
    """Return ``seconds`` after this call, by the clock; a replay does not begin to wait again.

    Raises:
        ValueError: ``seconds`` is no finite number.
    """
    if not math.isfinite(seconds):
        raise ValueError(f"sleep() takes a finite number of seconds, got {seconds!r}")
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    return _slept(self, call.operations.now(call.scheduler.scope()) + seconds)


def _slept(self: OperationsContext, until: float) -> Op[None]:
    call = self._call  # pyright: ignore[reportPrivateUsage] - as a method of the context
    scope = call.scheduler.scope()
    step_id = call.cursor.new_id(scope, "sleep")
    return call.scheduler.made(call.operations.sleep(scope, step_id, until))
