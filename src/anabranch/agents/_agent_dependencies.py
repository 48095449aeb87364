"""What all turns of one agent share: the store, the model, the person, limits, time and names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from anabranch._asking.answerer import Answerer
from anabranch._engine.clock import Clock
from anabranch.agents._events import Listener
from anabranch.agents._ports import Model, Naming
from anabranch.agents._turn_limits import TurnLimits
from anabranch.messages import Block, TextBlock, ToolSpec, Usage
from anabranch.tree import Kind, Node, TreeStore

__all__ = ["AgentDependencies"]


@dataclass(frozen=True, slots=True)
class AgentDependencies:
    """The surroundings in which an agent's turns run.

    Attributes:
        store: stores the threads.
        model: replies.
        tool_specs: describes to the model the tools that it may call.
        person: answers the questions of tools.
        limits: of each turn.
        listener: receives the events of a turn.
        clock: gives the time.
        naming: names threads and nodes.
    """

    store: TreeStore
    model: Model
    tool_specs: Sequence[ToolSpec]
    person: Answerer
    limits: TurnLimits
    listener: Listener
    clock: Clock
    naming: Naming

    def node(
        self,
        thread_id: str,
        parent_id: str | None,
        kind: Kind,
        content: Iterable[Block] | str = (),
        *,
        usage: Usage | None = None,
        data: Mapping[str, JsonValue] | None = None,
    ) -> Node:
        """Return a node created now and not yet stored."""
        blocks = (TextBlock(text=content),) if isinstance(content, str) else tuple(content)
        name, now = self.naming("node"), self.clock.now()
        return Node(name, thread_id, parent_id, kind, blocks, now, usage, dict(data or {}))
