"""Expiry of an agent's calls: a question that no one answers in time has its tool's effects undone.

The reaper of ``_durable`` does that; here is what it needs to know of the conversation.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from anabranch._durable.call_states import OPEN
from anabranch._durable.expiry import Reaper
from anabranch._durable.service import CallService
from anabranch._durable.store import CallRecord
from anabranch.agents._agent_dependencies import AgentDependencies
from anabranch.agents._expiry_times import not_before
from anabranch.tool import Runtime, Tool
from anabranch.tree import Node, Path, Thread, TreeStore, project

_CALLER = "node:"

ENDED_AT_ONCE = 100
"""Calls that are ended at the same time."""


def principal_of(caller: Node, thread: Thread) -> str:
    """Return the principal of the calls that ``caller`` makes: the node, and the thread's owner."""
    owner = "" if thread.owner is None else f"\n{thread.owner}"
    return f"{_CALLER}{caller.id}{owner}"


def caller_in(principal: str) -> tuple[str, str | None] | None:
    """Return what :func:`principal_of` was given: the node's id and the owner; or ``None``.

    A call that no conversation has made has another principal.
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
    """Return what encloses a call that ``caller`` makes: the conversation before it.

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
    """End all open calls, and undo what they have done; return those of which something is left.

    Raises:
        ValueError: the agent has no store of calls.
        StoreError: the store does not answer.
    """
    reaper, policy = reaper_of(dependencies, tools), dependencies.calls
    left, last = list[CallRecord](), None
    while policy is not None:
        page = await policy.store.calls(ENDED_AT_ONCE, states=OPEN, after=last)
        ours = [each for each in page if each.tool in tools]
        await asyncio.gather(*(reaper.end(each.call_id) for each in ours))
        known = [await policy.store.find(each.call_id) for each in page]
        left += [each for each in known if each is not None and each.state.is_open]
        if len(page) < ENDED_AT_ONCE:
            break
        last = page[-1]
    return left


def reaper_of(dependencies: AgentDependencies, tools: dict[str, Tool[Any]]) -> Reaper:
    """Return a reaper for the calls of ``tools``.

    Raises:
        ValueError: the agent has no store of calls.
    """
    alone = Runtime(clock=dependencies.clock, version=dependencies.version)
    service = CallService(alone, dependencies.calls)

    async def runtime_for(record: CallRecord) -> Runtime:
        node_id, _ = caller_in(record.principal) or ("", None)
        caller = await dependencies.store.node(node_id)
        return alone if caller is None else await runtime_at(dependencies, caller)

    async def not_before_of(record: CallRecord) -> float:
        node_id, _ = caller_in(record.principal) or ("", None)
        caller, store = await dependencies.store.node(node_id), dependencies.store
        if caller is None or service.durability is None:  # the conversation is deleted
            return 0.0
        tree, wait = await store.tree(caller.thread_id), service.durability.expire_after
        return not_before(record, caller, tree, dependencies.clock.now(), wait)

    return Reaper(service, tools, runtime_of=runtime_for, not_before=not_before_of)
