"""The dependencies of all turns of one agent: store, model, user, limits, time and names."""

from __future__ import annotations

import json
import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal, TypeAlias

from pydantic import JsonValue

from anabranch._aio import Clock, run_shielded
from anabranch._asking import Answerer, Capabilities
from anabranch._budget import Limits
from anabranch._durable import CallStore, Durability
from anabranch.agents._events import Addition, Listener, NodeAdded, ToolEnded, Writer, store_nodes
from anabranch.agents._turn_limits import TurnLimits
from anabranch.messages import Block, TextBlock, ToolSpec, Usage
from anabranch.models import StreamingSampler
from anabranch.stores import open_store
from anabranch.tool import has_methods, wrong_kind
from anabranch.tree import Kind, Node, Ref, RefusedError, Result, TreeStore

Model: TypeAlias = StreamingSampler
"""A model for an agent, which streams some replies and reads others when they are complete."""

Naming: TypeAlias = Callable[[Literal["thread", "node"]], str]
"""Returns the id of a new thread or node; each is unique."""


def random_names(kind: Literal["thread", "node"]) -> str:
    """Return ``thread_`` or ``node_``, followed by twelve random characters that suit URLs."""
    try:
        return f"{kind}_{_drawn.popleft()}"  # atomic: no two threads get the same
    except IndexError:
        drawn = secrets.token_urlsafe(9 * _AT_ONCE)
        _drawn.extend(drawn[start : start + 12] for start in range(0, 12 * _AT_ONCE, 12))
        return random_names(kind)


def name_after(place: str) -> str:
    digest = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=9).digest()
    return f"node_{urlsafe_b64encode(digest).decode()}"


_AT_ONCE = 128
"""Names are drawn from the system together: the branches of a fork need hundreds at a time."""

_drawn: deque[str] = deque()

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_drawn.clear)


class Suspension:
    """Marks turns that another process continues, because this process ends or loses their leases."""

    def __init__(self, is_over: Callable[[], bool] = lambda: False) -> None:
        self._is_over = is_over
        self._begun = False

    def begin(self) -> None:
        self._begun = True

    def enter(self) -> None:
        _of_turn.set(self)

    @property
    def begun(self) -> bool:
        own = _of_turn.get()
        self._begun = self._begun or self._is_over()
        if self._begun or own is None or own is self:
            return self._begun
        return own.begun


_of_turn: ContextVar[Suspension | None] = ContextVar("suspension of the turn", default=None)


@dataclass(frozen=True, slots=True)
class AgentDependencies:
    """The parts that all turns of one agent use; without a ``user``, the answers come later."""

    store: TreeStore
    model: Model
    tool_specs: Callable[[], Sequence[ToolSpec]]
    user: Answerer | None
    limits: TurnLimits
    tool_limits: Limits
    listener: Listener
    clock: Clock
    naming: Naming
    capabilities: Capabilities
    calls: Durability
    version: str = ""
    suspension: Suspension = field(default_factory=Suspension)
    run: str = ""
    system_prompt: Callable[[str | None], str | None] = lambda own: own
    writer: Writer = store_nodes

    def node(
        self,
        thread_id: str,
        parent_id: str | None,
        kind: Kind,
        content: Iterable[Block] | str = (),
        *,
        usage: Usage | None = None,
        data: Mapping[str, JsonValue] | None = None,
        key: str = "",
    ) -> Node:
        """Return an unstored node; in a run, every process derives the same id from its place.

        Several nodes of one kind below one parent need different keys, or their ids are equal.
        """
        blocks = (TextBlock(text=content),) if isinstance(content, str) else tuple(content)
        place, now = (self.run, thread_id, parent_id, kind, key), self.clock.now()
        name = name_after(json.dumps(place)) if self.run else self.naming("node")
        return Node(name, thread_id, parent_id, kind, blocks, now, usage, dict(data or {}))

    async def add(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> list[Node]:
        """Store and report ``nodes``; return them, or a run's nodes that another process stored."""
        try:
            await self.write(nodes, results, refs)
        except RefusedError:
            found = [await self.store.node(node.id) for node in nodes]
            there = [node for node in found if node is not None]
            if len(there) < len(nodes):
                raise
            for node in there:
                await self.listener(NodeAdded(node))
            return there
        return list(nodes)

    async def write(
        self,
        nodes: Sequence[Node] = (),
        results: Sequence[Result] = (),
        refs: Sequence[Ref] = (),
        events: Sequence[ToolEnded] = (),
    ) -> None:
        """Store nodes, results and refs, before a cancellation takes effect; report ``events`` and nodes."""
        added = Addition(nodes, results, refs, (*events, *map(NodeAdded, nodes)))
        await run_shielded(self.writer(self.store, added))
        for event in added.events:
            await self.listener(event)


EXPIRE_AFTER = 86_400.0
"""Seconds until the question of a tool expires: a user may come back to it the next day."""


def require_parts(
    where: str, store: object, model: object, capabilities: object, user: object = None
) -> None:
    if not has_methods(store, "create_thread", "append", "path"):
        wanted = "a store of conversations first, for example open_tree_store('sqlite:///trees.db')"
        raise wrong_kind(where, wanted, store)
    if not has_methods(model, "sample"):
        wanted = "a model second, for example open_model('anthropic:claude-sonnet-5-5')"
        raise wrong_kind(where, wanted, model)
    if not isinstance(capabilities, Capabilities | None):
        wanted = "Capabilities, for example capabilities=Capabilities(elicitation=True)"
        raise wrong_kind(where, wanted, capabilities)
    if user is not None and not has_methods(user, "elicit", "sample"):
        wanted = "an answerer as user, for example PluginAnswerer(store, [plugin])"
        raise wrong_kind(where, wanted, user)


def require_id(method: str, of: str, given: object) -> None:
    if not isinstance(given, str):
        raise wrong_kind(f"agent.{method}()", f"the id of a {of}, for example {of}.id", given)


def require_node(given: object) -> None:
    if not isinstance(given, Node):
        raise wrong_kind("This method", "a node, for example await agent.store.node(id)", given)


def durability_of(calls: CallStore | Durability | None, trees: TreeStore) -> Durability:
    """Return ``calls`` if it is a policy; otherwise a policy for the store, with an agent's times.

    Calls fork: the tree has each question's state, so a user can answer a question again.
    """
    if not isinstance(calls, Durability):
        store = open_store(trees) if calls is None else calls
        calls = Durability(store, expire_after=EXPIRE_AFTER)
    return replace(calls, forks="fork", spill=sys.maxsize)


def offered(asked: Capabilities, model: Model) -> Capabilities:
    """Return the questions of ``asked``, and the samples of ``model``, as capabilities."""
    samples: Capabilities = getattr(model, "capabilities", Capabilities())
    return replace(
        asked,
        sampling=samples.sampling,
        sampling_tools=samples.sampling_tools,
        sampling_context=samples.sampling_context,
        sampling_documents=samples.sampling_documents,
    )
