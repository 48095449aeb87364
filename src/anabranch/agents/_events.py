"""Events that an agent sends once to its listener, such as a terminal or a web page, during a turn."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch._engine import Notice
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.messages import ToolUseBlock
from anabranch.tool import wrong_kind
from anabranch.tree import Node, Ref, Result, TreeStore


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """Event: a node was stored."""

    node: Node


@dataclass(frozen=True, slots=True)
class BranchResumed:
    """Event: a turn continues a branch; ``path`` has the branch's nodes so far."""

    path: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class BranchEnded:
    """Event: a branch has ended. A branch that waits for answers has not ended."""

    outcome: BranchOutcome


@dataclass(frozen=True, slots=True)
class TextReceived:
    """Event: a piece of the reply that the model writes after the node with the id ``after``."""

    after: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """Event: a tool has started, which the node with the id ``caller`` called."""

    caller: str
    use: ToolUseBlock


@dataclass(frozen=True, slots=True)
class ToolNoticed:
    """Event: a tool has sent a log message or a progress message."""

    caller: str
    use: ToolUseBlock
    notice: Notice


@dataclass(frozen=True, slots=True)
class ToolBranched:
    """Event: a branch inside a tool, such as ``book/compare#1``, has opened or has ended.

    A branch that is open while its tool asks the user opens again when the tool continues.
    """

    caller: str
    use: ToolUseBlock
    path: str
    is_open: bool


@dataclass(frozen=True, slots=True)
class ToolSuspended:
    """Event: a tool sleeps ``until`` a time, in seconds since the epoch, without a running task.

    If the turn continues earlier, the event is sent again. If the tool ``asks``, answers to its
    questions also continue the turn.
    """

    caller: str
    use: ToolUseBlock
    until: float
    asks: bool = False


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """Event: a tool has returned.

    ``result`` is in the store. If the tool was resumed at a question with an earlier answer,
    ``result`` is stored later, together with the ``results`` node. ``in_front_end``: the front end
    ran the tool.
    """

    use: ToolUseBlock
    result: Result
    in_front_end: bool = False


Event: TypeAlias = (
    NodeAdded
    | BranchResumed
    | BranchEnded
    | TextReceived
    | ToolStarted
    | ToolNoticed
    | ToolBranched
    | ToolSuspended
    | ToolEnded
)
"""An event of a turn, as a listener receives it."""

Listener: TypeAlias = Callable[[Event], Awaitable[None]]
"""Receives each event. The turn waits for its return; an error of the listener ends the turn."""


def awaited(listener: Callable[[Event], object]) -> Listener:
    """Return ``listener`` as an async function; ``listener`` may be a plain function."""
    if not callable(listener):
        raise wrong_kind("Agent()", "a function of one event as listener", listener)

    async def listen(event: Event) -> None:
        returned = listener(event)
        if inspect.isawaitable(returned):
            await returned

    return listen


async def ignore_event(event: Event) -> None:
    del event


@dataclass(frozen=True, slots=True)
class Addition:
    nodes: Sequence[Node]
    results: Sequence[Result]
    refs: Sequence[Ref]
    events: Sequence[NodeAdded | ToolEnded]


Writer: TypeAlias = Callable[[TreeStore, Addition], Coroutine[Any, Any, None]]
"""Stores an addition, before the listener receives its events; may store the events with it."""


async def store_nodes(store: TreeStore, added: Addition) -> None:
    await store.append(added.nodes, results=added.results, refs=added.refs)
