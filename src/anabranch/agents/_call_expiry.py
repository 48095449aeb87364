"""Undoes the effects of an agent's tool whose question gets no answer in time."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import Any

from anabranch._durable import OPEN, CallRecord, CallService, Reaper
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.errors import UnknownCallError
from anabranch.tool import Runtime, Tool
from anabranch.tree import Node, Path, Thread, TreeStore, project

LONGEST_WAIT = 30 * 86_400.0
"""Seconds after which a call that waits for a worker, and for no user, expires."""

ENDED_AT_ONCE = 100
"""Maximum calls that are ended at the same time."""


def runtime_at(dependencies: AgentDependencies, thread: Thread | None, above: Path) -> Runtime:
    return replace(
        _conversation_at(thread, above),
        limits=dependencies.tool_limits,
        clock=dependencies.clock,
        version=dependencies.version,
    )


async def runtime_of(store: TreeStore, record: CallRecord) -> Runtime | None:
    if not record.node:
        return Runtime()
    caller = await store.node(record.node)
    return None if caller is None else _conversation_at(*await _above(store, caller))


async def _above(store: TreeStore, caller: Node) -> tuple[Thread | None, Path]:
    path = await store.path(caller.parent_id or caller.id)
    return await store.thread(caller.thread_id), path


def _conversation_at(thread: Thread | None, above: Path) -> Runtime:
    return Runtime(
        parent_messages=project(above.nodes, above.results),
        parent_system_prompt=None if thread is None else thread.system_prompt,
    )


async def keep_open(
    dependencies: AgentDependencies, call: str, until: float = math.inf, *, now: float = -math.inf
) -> bool:
    """Extend a call's deadline; return whether the call is open, as is a call that no store has.

    A call whose deadline is ``now`` or earlier is over. A reaper or a stop may end it meanwhile: the
    first change of the call's row decides.
    """
    begins = until if until < math.inf else dependencies.clock.now()
    store, deadline = dependencies.calls.store, begins + LONGEST_WAIT
    try:
        return await store.answer(call, {}, by="", deadline=deadline, now=now) is not None
    except UnknownCallError:
        return True


async def end_calls(
    dependencies: AgentDependencies, tools: dict[str, Tool[Any]]
) -> list[CallRecord]:
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
    alone = Runtime(clock=dependencies.clock, version=dependencies.version)
    service = CallService(alone, dependencies.calls)

    async def runtime_for(record: CallRecord) -> Runtime:
        caller = await dependencies.store.node(record.node)
        if caller is None:
            return alone
        return runtime_at(dependencies, *await _above(dependencies.store, caller))

    return Reaper(service, tools, runtime_of=runtime_for)
