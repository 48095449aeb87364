"""Sends prompts in several branches of a conversation without moving its head."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.agents._agent import Agent, turn_of
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._branch_runs import BranchPath, new_branches, run_branches
from anabranch.agents._recombination import BranchAnswer, Recombined, recombine
from anabranch.errors import ToolError
from anabranch.tree import HEAD, Navigator, Node

TEXT_RECOMBINERS = ("concatenate", "llm_judge", "llm_vote", "llm_merge")
"""The recombiners that make a text, in the order in which a user chooses from them."""


async def branch(
    agent: Agent, thread_id: str, prompts: Sequence[str], *, at: str | None = None
) -> list[BranchOutcome]:
    """Open a branch for each prompt below one node, one after the other; return the outcomes."""
    return await _fork(agent, thread_id, prompts, at, parallel=False)


async def parallel(
    agent: Agent, thread_id: str, prompts: Sequence[str], *, at: str | None = None
) -> list[BranchOutcome]:
    """Open a branch for each prompt below one node, all at the same time; return the outcomes."""
    return await _fork(agent, thread_id, prompts, at, parallel=True)


async def combine(
    agent: Agent, nodes: Sequence[Node], recombiner: str = "concatenate", *, judges: int = 3
) -> Recombined:
    """Combine the texts of ``nodes``, all in the same thread, into one text, and return it.

    Each text is labelled with the name of its branch, or ``main``.

    Raises:
        ToolError: if there are no nodes, the nodes are of several threads, or the recombiner does
            not exist.
    """
    if not nodes:
        raise ToolError("There is nothing to combine.")
    timeline = (await turn_of(agent, nodes[0])).timeline
    navigator = Navigator(await agent.store.tree(timeline.thread.id))
    for node in nodes:
        if node.id not in navigator.nodes:
            raise ToolError(f"There is no node {node.id!r} in thread {timeline.thread.id!r}.")
    answers = [
        BranchAnswer(navigator.branch_of(node.id) or "main", _prompt(navigator, node), node.text)
        for node in nodes
    ]
    return await recombine(recombiner, answers, timeline.aside, judges=judges)


async def broadcast_to_leaves(
    agent: Agent,
    thread_id: str,
    prompt: str,
    *,
    below: str | None = None,
    skip: Collection[str] = (),
) -> list[BranchOutcome]:
    """Send ``prompt`` to every leaf of the thread at the same time; return the outcomes.

    Args:
        agent: the agent that replies.
        thread_id: the thread.
        prompt: the message to add below each leaf.
        below: a node, to restrict the leaves to those below it; by default, all leaves of the
            thread.
        skip: labels; the function leaves out leaves with these labels.
    """
    tree = await agent.store.tree(thread_id)
    skipped = {node for name, node in tree.refs.items() if name != HEAD and name in skip}
    leaves = [node.id for node in Navigator(tree).leaves(below) if node.id not in skipped]
    prompts = [(leaf, prompt) for leaf in leaves]
    return await _say_at_each(agent, thread_id, prompts, parallel=True)


async def _fork(
    agent: Agent, thread_id: str, prompts: Sequence[str], at: str | None, *, parallel: bool
) -> list[BranchOutcome]:
    at = at if at is not None else await agent.head(thread_id)
    prompts = [prompts] if isinstance(prompts, str) else prompts  # one text is one prompt
    return await _say_at_each(
        agent, thread_id, [(at, prompt) for prompt in prompts], parallel=parallel
    )


async def _say_at_each(
    agent: Agent, thread_id: str, prompts: Sequence[tuple[str | None, str]], *, parallel: bool
) -> list[BranchOutcome]:
    if not prompts:
        return []
    starts = await agent.put(thread_id, prompts, head=False)
    turn = await turn_of(agent, starts[0])
    outcomes: dict[str, BranchOutcome] = {}
    paths = [BranchPath([start]) for start in starts]
    if len({start.parent_id for start in starts}) == 1 and (parent := starts[0].parent_id):
        paths = new_branches(await agent.store.path(parent), starts)
    await run_branches(turn, paths, outcomes, work=True, parallel=parallel)
    return [outcomes[start.id] for start in starts]


def _prompt(navigator: Navigator, node: Node) -> str:
    path = reversed(navigator.path(node.id))
    return next((each.text for each in path if each.kind in {"user", "branch"}), "")
