"""A user's call of a tool, and the end of a turn, in the terminal and on the web."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from pydantic import JsonValue

from anabranch.agents import Agent, result_at
from anabranch.chat._terminal.typed_input import read_arguments
from anabranch.messages import ToolUseBlock
from anabranch.models import INTERRUPTED
from anabranch.tree import ASIDE, Node, Path, Result, TurnEnd, is_no_result

BATCH: frozenset[str] = ASIDE | {"results"}
"""Kinds of nodes that follow a node that calls tools, and whose names derive from it."""


@dataclass(frozen=True, slots=True)
class UserCall:
    tool: str
    arguments: Mapping[str, JsonValue]

    @classmethod
    def read(cls, agent: Agent, text: str) -> UserCall | None:
        """Return the call in a message ``/TOOL name=value …``, ``None`` for any other message."""
        name, _, values = text.strip().removeprefix("/").partition(" ")
        tool = agent.tools.get(name) if text.lstrip().startswith("/") else None
        return None if tool is None else cls(name, read_arguments(tool, values.strip()))

    async def run(self, agent: Agent, message: Node) -> Node:
        given = agent.dependencies
        use = ToolUseBlock(id=given.naming("node"), name=self.tool, input=dict(self.arguments))
        caller = given.node(message.thread_id, message.id, "assistant", (use,), data={"by": "user"})
        [caller] = await agent.add([caller])
        return await agent.use_tools(caller)


async def end_turn(agent: Agent, thread_id: str, node_id: str | None, error: str | None) -> None:
    """Store that a turn was stopped, or failed with ``error``, unless it has a whole reply.

    A stop or a failure may come after the whole reply: then there is nothing to retry.
    """
    around = await agent.store.around(thread_id, node_id)
    if around is not None and not _has_replied(around):
        await agent.store.end_turn(around.last.id, TurnEnd(error))


def _has_replied(path: Path) -> bool:
    last = path.nodes[-1]
    if last.kind == "results":
        return is_by_user(path) and has_returned(path)
    return is_whole(last)


def is_whole(node: Node) -> bool:
    """Return whether a node is a complete reply of the model that calls no tool."""
    is_cut = node.data.get("stop_reason") in {"error", INTERRUPTED}
    return node.kind == "assistant" and not node.tool_uses and not is_cut


def is_by_user(path: Path) -> bool:
    turn = takewhile(lambda each: each.kind != "user", reversed(path.nodes))
    return any(each.data.get("by") == "user" for each in turn)


def has_returned(path: Path) -> bool:
    found = filter(None, results_at_end(path))
    contents = (each.content if each.pending is None else each.pending for each in found)
    return not all(map(is_no_result, contents))


def results_at_end(path: Path) -> list[Result | None]:
    """Return the results of the tools at the end of a path, each ``None`` if it is missing."""
    back = dropwhile(lambda each: each.kind in BATCH, reversed(path.nodes))
    caller = next(back, path.nodes[-1])
    return [result_at(path, use.id) for use in caller.tool_uses]
