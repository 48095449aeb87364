"""Ways to lead a conversation by program: one prompt after another, side by side, until done.

Owns the patterns, as plain functions over an agent and its tree; what they make are ordinary nodes
that a person can walk and go on from. ``at`` is the node to begin at, the thread's head by default.
Those that go one way move the head along; those that fork leave it where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

from anabranch.agents._agent import Agent
from anabranch.agents._branches import Grown, grow
from anabranch.agents._recombining import Answer, Recombined, recombine
from anabranch.agents._turn import Turn
from anabranch.errors import ToolError
from anabranch.tree import HEAD, Navigator, Node

__all__ = [
    "MAKERS",
    "Stop",
    "branch",
    "broadcast_to_leaves",
    "chain",
    "combine",
    "parallel",
    "prompt_while",
    "said",
    "tool_not_used",
    "tool_used",
    "tree_of_thought",
]

MAKERS = ("concatenate", "llm_judge", "llm_vote", "llm_merge")
"""Recombiners that make a text, in the order in which a person chooses from them."""
MAIN = "main"
"""What the stream is called from which branches go out."""

Stop: TypeAlias = Callable[[Sequence[Node]], bool]
"""Whether to stop, given the nodes of the last turn, from its prompt to its end."""


def tool_not_used(turn: Sequence[Node]) -> bool:
    """Stop when a turn has used no tools."""
    return not tool_used(turn)


def tool_used(turn: Sequence[Node]) -> bool:
    """Stop when a turn has used a tool."""
    return any(node.tool_uses for node in turn)


def said(word: str) -> Stop:
    """Stop when the model has said ``word`` at the end of a turn."""
    return lambda turn: word in turn[-1].text


async def chain(
    agent: Agent, thread_id: str, prompts: Sequence[str], *, at: str | None = None
) -> list[Node]:
    """Say one prompt after the other; return where each turn has ended."""
    ends: list[Node] = []
    for prompt in prompts:
        ends.append(await agent.say(thread_id, prompt, at=ends[-1].id if ends else at))
    return ends


async def branch(
    agent: Agent, thread_id: str, prompts: Sequence[str], *, at: str | None = None
) -> list[Grown]:
    """Say each prompt at the same node, one after the other; return the branches, in order."""
    return await _fork(agent, thread_id, prompts, at, side_by_side=False)


async def parallel(
    agent: Agent, thread_id: str, prompts: Sequence[str], *, at: str | None = None
) -> list[Grown]:
    """Say each prompt at the same node, all at once; return the branches, in order."""
    return await _fork(agent, thread_id, prompts, at, side_by_side=True)


async def combine(
    agent: Agent, branches: Sequence[Node], how: str = "concatenate", *, judges: int = 3
) -> Recombined:
    """Make one text of what nodes of one thread say; nothing is added to it.

    Each is called what its branch is called; what is not on a branch, ``main``.

    Raises:
        ToolError: there are no nodes, one is not in the thread of the first, or there is no such
            recombiner.
    """
    if not branches:
        raise ToolError("There is nothing to combine.")
    turn = await Turn.at(agent, branches[0])
    walk = Navigator(await agent.store.tree(turn.thread.id))
    for node in branches:
        if node.id not in walk.nodes:
            raise ToolError(f"There is no node {node.id!r} in thread {turn.thread.id!r}.")
    answers = [
        Answer(walk.branch_of(node.id) or MAIN, _prompt(walk, node), node.text) for node in branches
    ]
    return await recombine(how, answers, partial(turn.aside), judges=judges)


async def tree_of_thought(
    agent: Agent,
    thread_id: str,
    prompts: Sequence[str],
    *,
    how: str = "llm_merge",
    at: str | None = None,
) -> Node:
    """Think along several ways at once, and go on from what has come of all of them.

    The ways stay in the tree as branches; the conversation goes on beside them, with their
    recombined text as the next message. Returns where that turn has ended.

    Raises:
        ToolError: no branch has answered; or ``how`` is no recombiner that makes a text, in which
            case nothing is begun.
    """
    if how.strip().lower() not in MAKERS:
        raise ToolError(f"{how!r} makes no text to go on from. Recombiners: {', '.join(MAKERS)}.")
    at = at if at is not None else await agent.head(thread_id)
    grown = await parallel(agent, thread_id, prompts, at=at)
    answered = [each.end for each in grown if each.text.strip()]
    if not answered:
        failed = sorted({each.error for each in grown if each.error is not None})
        raise ToolError(f"No way of thinking has led anywhere. {' '.join(failed)}".strip())
    made = await combine(agent, answered, how)
    return await agent.say(thread_id, made.text, at=at)


async def prompt_while(
    agent: Agent,
    thread_id: str,
    prompt: str,
    *,
    go_on: str = "ok",
    until: Stop = tool_not_used,
    most: int = 20,
    at: str | None = None,
) -> list[Node]:
    """Say ``prompt``, then ``go_on`` until a turn gives reason to stop; return the turns' ends.

    There are at most ``most`` turns, whatever ``until`` says.
    """
    end = await agent.say(thread_id, prompt, at=at)
    ends = [end]
    while len(ends) < most and not until(await _last_turn(agent, end)):
        end = await agent.say(thread_id, go_on, at=end.id)
        ends.append(end)
    return ends


async def broadcast_to_leaves(
    agent: Agent,
    thread_id: str,
    prompt: str,
    *,
    below: str | None = None,
    skip: Collection[str] = (),
) -> list[Grown]:
    """Say ``prompt`` at every leaf of the thread, or below a node, all at once; return them.

    Each answer follows on its own leaf. Leaves with a label in ``skip`` are left alone.
    """
    tree = await agent.store.tree(thread_id)
    skipped = {node for name, node in tree.refs.items() if name != HEAD and name in skip}
    leaves = [node.id for node in Navigator(tree).leaves(below) if node.id not in skipped]
    return await _grow(agent, thread_id, [(leaf, prompt) for leaf in leaves], side_by_side=True)


async def _fork(
    agent: Agent, thread_id: str, prompts: Sequence[str], at: str | None, *, side_by_side: bool
) -> list[Grown]:
    at = at if at is not None else await agent.head(thread_id)
    places = [(at, prompt) for prompt in prompts]
    return await _grow(agent, thread_id, places, side_by_side=side_by_side)


async def _grow(
    agent: Agent, thread_id: str, places: Sequence[tuple[str | None, str]], *, side_by_side: bool
) -> list[Grown]:
    if not places:
        return []
    starts = await agent.put(thread_id, places, head=False)
    turn = await Turn.at(agent, starts[0])
    ends: dict[str, Grown] = {}
    told = zip(starts, await turn.told(starts), strict=True)
    await grow(turn, told, ends, work=True, parallel=side_by_side)
    return [ends[start.id] for start in starts]


async def _last_turn(agent: Agent, end: Node) -> Sequence[Node]:
    nodes = (await agent.store.path(end.id)).nodes
    return nodes[max(at for at, node in enumerate(nodes) if node.kind == "user") :]


def _prompt(walk: Navigator, node: Node) -> str:
    """Return what ``node`` is the answer to, in the end."""
    path = reversed(walk.path(node.id))
    return next((each.text for each in path if each.kind in {"user", "branch"}), "")
