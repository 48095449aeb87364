"""Expiry of an agent's calls: undoes the effects of a tool whose question gets no answer in time.

The reaper of ``_durable`` runs the undos; this module tells the reaper about the conversation.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from anabranch._durable.call_states import OPEN
from anabranch._durable.expiry import Reaper
from anabranch._durable.service import CallService
from anabranch._durable.store import CallRecord
from anabranch._engine import Journal
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.agents._batch_line import ASIDE, AskedRound, BatchLine
from anabranch.tool import Runtime, Tool
from anabranch.tree import Navigator, Node, Path, Results, Thread, Tree, TreeStore, is_said, project

GRACE = 120.0
"""Seconds from the end of a question's time until its call expires.

That is as far as clocks are apart, and as long as it takes to store an answer that was just in time.
"""

LONGEST_WAIT = 30 * 86_400.0
"""Seconds after its answers for which a call waits for the engine: no worker comes any more."""


def open_until(asked: float, wakes: float | None, expire_after: float) -> float:
    """Return the time at which a question expires.

    Args:
        asked: when it was asked.
        wakes: when a sleep beside it ends, if there is one.
        expire_after: as in :class:`~anabranch.agents.Durability`.
    """
    return max(asked, wakes or 0.0) + expire_after


def not_before(record: CallRecord, caller: Node, tree: Tree, now: float, wait: float) -> float:
    """Return the earliest time at which a call may expire; 0 if only its deadline counts.

    Only the deadline counts for a call that no longer continues in its conversation, for example
    because it has returned there.

    Args:
        record: the call.
        caller: the node that makes it.
        tree: the caller's thread.
        now: the time.
        wait: seconds to wait for a user, and for a worker before the next check.
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
    """Yield the lines of a caller's tools after which the conversation has not continued."""
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


_CALLER = "node:"

ENDED_AT_ONCE = 100
"""Calls that are ended at the same time."""


def principal_of(caller: Node, thread: Thread) -> str:
    """Return the principal of the calls that ``caller`` makes: the node, and the thread's owner."""
    owner = "" if thread.owner is None else f"\n{thread.owner}"
    return f"{_CALLER}{caller.id}{owner}"


def caller_in(principal: str) -> tuple[str, str | None] | None:
    """Return the node's id and the owner from a principal that :func:`principal_of` made.

    Returns ``None`` for the principal of a call that no conversation has made.
    """
    if not principal.startswith(_CALLER):
        return None
    node_id, owned, owner = principal.removeprefix(_CALLER).partition("\n")
    return node_id, owner if owned else None


async def runtime_at(
    dependencies: AgentDependencies,
    caller: Node,
    thread: Thread | None = None,
    above: Path | None = None,
) -> Runtime:
    """Return the runtime of a call that ``caller`` makes: the conversation before the call.

    ``thread`` and ``above``, the path to what the caller follows, are given where they are known.
    """
    store = dependencies.store
    return replace(
        await _conversation_at(store, caller, thread, above),
        limits=dependencies.tool_limits,
        clock=dependencies.clock,
        version=dependencies.version,
    )


async def runtime_of(store: TreeStore, record: CallRecord) -> Runtime | None:
    """Return the conversation that a recorded call had, ``None`` if that is gone from ``store``."""
    if (named := caller_in(record.principal)) is None:
        return Runtime()
    caller = await store.node(named[0])
    return None if caller is None else await _conversation_at(store, caller)


async def _conversation_at(
    store: TreeStore, caller: Node, thread: Thread | None = None, above: Path | None = None
) -> Runtime:
    path = above or await store.path(caller.parent_id or caller.id)
    thread = thread or await store.thread(caller.thread_id)
    return Runtime(
        parent_messages=project(path.nodes, path.results),
        parent_system_prompt=None if thread is None else thread.system_prompt,
    )


async def end_calls(
    dependencies: AgentDependencies, tools: dict[str, Tool[Any]]
) -> list[CallRecord]:
    """End all open calls and undo their effects; return the calls with effects left.

    Raises:
        StoreError: the store does not answer.
    """
    reaper, store = reaper_of(dependencies, tools), dependencies.calls.store
    left, last = list[CallRecord](), None
    while True:
        page = await store.calls(ENDED_AT_ONCE, states=OPEN, after=last)
        ours = [each for each in page if each.tool in tools]
        await asyncio.gather(*(reaper.end(each.call_id) for each in ours))
        known = [await store.find(each.call_id) for each in page]
        left += [each for each in known if each is not None and each.state.is_open]
        if len(page) < ENDED_AT_ONCE:
            break
        last = page[-1]
    return left


def reaper_of(dependencies: AgentDependencies, tools: dict[str, Tool[Any]]) -> Reaper:
    """Return a reaper for the calls of ``tools``."""
    alone = Runtime(clock=dependencies.clock, version=dependencies.version)
    service = CallService(alone, dependencies.calls)

    async def runtime_for(record: CallRecord) -> Runtime:
        node_id, _ = caller_in(record.principal) or ("", None)
        caller = await dependencies.store.node(node_id)
        return alone if caller is None else await runtime_at(dependencies, caller)

    async def not_before_of(record: CallRecord) -> float:
        node_id, _ = caller_in(record.principal) or ("", None)
        caller, store = await dependencies.store.node(node_id), dependencies.store
        if caller is None:  # the conversation is deleted
            return 0.0
        tree, wait = await store.tree(caller.thread_id), dependencies.calls.expire_after
        return not_before(record, caller, tree, dependencies.clock.now(), wait)

    return Reaper(service, tools, runtime_of=runtime_for, not_before=not_before_of)
