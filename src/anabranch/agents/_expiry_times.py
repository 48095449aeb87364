"""Until when a call of an agent may not expire, whatever its deadline in the store of calls says.

An answer is in the tree before a worker is called. From then on its call waits for the engine, not
for a person, and how long that takes is not the person's fault: such a call does not expire. The
store of calls knows nothing of that, so the reaper asks here before it ends a call.

It ends a call whose question is open only after :data:`GRACE`. Answers are refused earlier, when the
question's own time is over: so none is accepted while the call is being undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from anabranch._durable.store import CallRecord
from anabranch._engine import Journal
from anabranch.agents._batch_line import ASIDE, AskedRound, BatchLine
from anabranch.tree import Navigator, Node, Results, Tree
from anabranch.tree._person_view import is_said

GRACE = 120.0
"""Seconds from the end of a question's time until its call expires.

That is as far as clocks are apart, and as long as it takes to store an answer that was just in time.
"""

LONGEST_WAIT = 30 * 86_400.0
"""Seconds after its answers for which a call waits for the engine: no worker comes any more."""


def open_until(asked: float, wakes: float | None, expire_after: float) -> float:
    """Return when the time of a question is over.

    Args:
        asked: when it was asked.
        wakes: when a sleep beside it ends, if there is one.
        expire_after: as in :class:`~anabranch.agents.Durability`.
    """
    return max(asked, wakes or 0.0) + expire_after


def not_before(record: CallRecord, caller: Node, tree: Tree, now: float, wait: float) -> float:
    """Return before when a call must not expire; 0 where its deadline alone counts.

    That is so of a call which does not go on in its conversation: since it has returned there, say.

    Args:
        record: the call.
        caller: the node that makes it.
        tree: the caller's thread.
        now: the time.
        wait: seconds for which a person is waited for; and a worker, until this is asked again.
    """
    navigator = Navigator(tree)
    if _is_over(navigator.path(caller.id), tree.results):
        return 0.0
    times = [
        _round_ends(line, use_id, round_, now, wait)
        for line in _lines(caller, navigator, tree.results)
        for use_id, round_ in line.rounds.items()
        if not line.has_returned(use_id) and _is_of(record.call_id, round_)
    ]
    return max(times, default=0.0)


def _round_ends(line: BatchLine, use_id: str, round_: AskedRound, now: float, wait: float) -> float:
    if line.is_waiting(use_id, now) or not round_.answers:
        wakes = round_.until if round_.until < math.inf else None
        return open_until(round_.questions[0].created_at, wakes, wait) + GRACE
    answered = max(each.created_at for each in round_.answers.values())
    return min(now + wait, answered + LONGEST_WAIT)


def _is_of(call_id: str, round_: AskedRound) -> bool:
    """Whether the round is the call's, or of the line of it from which another answer begins this."""
    try:
        line = Journal.loads(str(round_.questions[0].data.get("state", ""))).line
    except ValueError:  # written by another release; this one does not continue it
        return False
    return call_id == line or call_id.startswith(f"{line}~")


def _lines(caller: Node, navigator: Navigator, results: Results) -> Iterator[BatchLine]:
    """Yield the lines of a caller's tools on which the conversation has not gone on."""
    ends = [[caller]]
    while ends:
        nodes = ends.pop()
        below = [each for each in navigator.children(nodes[-1].id) if each.kind != "branch"]
        aside = [each for each in below if each.kind in ASIDE]
        ends += [[*nodes, each] for each in aside]
        if not below:
            yield BatchLine(nodes, results)


def _is_over(path: Sequence[Node], results: Results) -> bool:
    """Whether the end of a path is in a branch whose tool has returned: nothing goes on there."""
    said = max((at for at, node in enumerate(path) if is_said(node)), default=0)
    return any(
        node.kind == "branch"
        and BatchLine([above], results).has_returned(str(node.data.get("tool_use_id")))
        for above, node in zip(path[said:], path[said + 1 :], strict=False)
    )
