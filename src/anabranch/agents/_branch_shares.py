"""Shares of a turn's limits: what a branch may use that another process works on; and what was used.

A share is stored in the branch's first node, so it is the same in whatever process. What was used is
read from the tree: a branch that has ended has used what its nodes say, and returns the rest of its
share; one that has not may still use all of it. So the sum never exceeds the limits of the turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from typing import Any, cast

from pydantic import JsonValue

from anabranch.agents._agent_tools import BranchingTool, ToolUse
from anabranch.agents._branch_progress import SHARE, BranchProgress
from anabranch.agents._timeline import RequestMessages
from anabranch.agents._turn_limits import ESTIMATE, Share, Spent
from anabranch.tree import Node, Tree, TreeStore
from anabranch.tree._person_view import is_said


def share_of(start: Node) -> Share | None:
    """Return the share of a branch, ``None`` if it is worked on where it was opened."""
    given = start.data.get(SHARE)
    return None if given is None else Share(**cast("dict[str, Any]", given))


def share_data(
    here: ToolUse, count: int, messages: Iterable[RequestMessages], *, of: str
) -> dict[str, JsonValue]:
    """Return what the first node of a branch says that workers work on; nothing for any other.

    Args:
        here: the use that opens it.
        count: how many branches are opened side by side; one alone stays where it is opened.
        messages: those of a first request of each of them.
        of: names what opens them, so that all have equal shares.
    """
    meter, tools = here.timeline.meter, (here.tools.get(use.name) for use in here.caller.tool_uses)
    if count == 1 or not here.shares_branches:
        return {}
    if meter.account.is_limited and not all(isinstance(each, BranchingTool) for each in tools):
        return {}  # what other tools sample is stored later, and no other process would count it
    share = meter.share(of, count, max(map(here.timeline.needed, messages)))
    return {} if share is None else {SHARE: asdict(share)}


async def spent_in_turn(store: TreeStore, node: Node, *, shared: bool) -> Spent:
    """Return what the turn has used that goes on at ``node``: on its path and in all its branches.

    ``shared`` says that workers go on with branches that have shares, so that these are not free.
    """
    tree = await store.tree(node.thread_id)
    known = {each.id: each for each in tree.nodes}
    path = [node]
    while not is_said(path[-1]) and (above := known.get(path[-1].parent_id or "")) is not None:
        path.append(above)
    own = [each for each in path if not is_said(each)]
    on_path = {each.id for each in own}
    beside = _below(tree, lambda each: each.parent_id == node.id or each.kind == "branch", on_path)
    nodes = [*own[::-1], *beside]
    return _spent(BranchProgress(tree.nodes, tree.results), nodes) if shared else _sum(nodes)


async def spent_in_branch(store: TreeStore, start: Node) -> Spent:
    """Return what a branch has used, all branches inside of it included."""
    tree = await store.tree(start.thread_id)
    nodes = _below(tree, lambda each: each.parent_id == start.id, {start.id})
    return _spent(BranchProgress(tree.nodes, tree.results), nodes)


def _below(tree: Tree, begins: Callable[[Node], bool], on_path: AbstractSet[str]) -> list[Node]:
    """Return the nodes below a path, from children of it with which a part of the turn ``begins``."""
    inside, found = set[str](), list[Node]()
    for each in tree.nodes:  # parents come before children
        is_first = each.parent_id in on_path and begins(each) and each.id not in on_path
        if (is_first or each.parent_id in inside) and not is_said(each):
            inside.add(each.id)
            found.append(each)
    return found


def _spent(progress: BranchProgress, nodes: Iterable[Node]) -> Spent:
    """Return what ``nodes`` have used; the branches that have shares, their shares until they end."""
    own, inside = list[Node](), defaultdict[str, list[Node]](list)
    within: dict[str, str] = {}  # node to the outermost branch with a share that it is in
    for node in nodes:
        around = within.get(node.parent_id or "")
        if around is not None:
            within[node.id] = around
            inside[around].append(node)
            continue
        own.append(node)
        if share_of(node) is not None:
            within[node.id] = node.id
    total = _sum(own)
    for start in own:
        if (share := share_of(start)) is not None:
            used = _spent(progress, inside[start.id])
            total += used if progress.is_over(start) else used.or_more(share.whole)
    return total


def _sum(nodes: Iterable[Node]) -> Spent:
    total = Spent()
    for node in nodes:
        estimate = cast("dict[str, Any]", node.data.get(ESTIMATE) or {})
        tokens = 0 if node.usage is None else node.usage.total_tokens
        total += Spent(
            tokens + int(estimate.get("tokens", 0)),
            float(cast("float", node.data.get("cost", 0.0))) + float(estimate.get("cost", 0.0)),
            branches=node.kind == "branch",
        )
    return total
