"""``anabranch tree``: the commands that show, label, export and prune stored conversations."""

from __future__ import annotations

import sys
from functools import partial
from shutil import get_terminal_size
from typing import Annotated, Literal

from cyclopts import App, Parameter

from anabranch._terminal import FailedError, UsageError, failing_as
from anabranch.cli._commands import command_group, example
from anabranch.cli._options import AsJson, Limit, Store, Yes
from anabranch.cli._output import confirm, counted, print_either, print_json, print_text
from anabranch.cli._stores import with_store
from anabranch.stores import open_tree_store
from anabranch.tree import (
    HEAD,
    LATEST,
    AmbiguousIdError,
    Ref,
    Tree,
    TreeStore,
    draw,
    find_node,
    find_node_id,
    find_thread,
    is_branch_name,
    load_files,
    local_time,
    messages_to_json,
    name_branches,
    project,
    short_ids,
    to_markdown,
    to_mermaid,
    tree_to_json,
)

tree_app: App = command_group("tree", "anabranch tree list --limit 5")

Thread = Annotated[str, Parameter(help="Id of a thread, or its beginning; “last” for the latest.")]
Node = Annotated[
    str,
    Parameter(help="Node: an id or its beginning, a label, or the name of a branch (b1, b1.2)."),
]


@tree_app.command(name="list", help_epilogue=example("anabranch tree list --limit 5"))
def list_command(*, limit: Limit = 50, json: AsJson = False, store: Store = None) -> None:
    """List the latest threads, the newest first: a table in a terminal, otherwise JSON."""
    found = with_store(open_tree_store, store, lambda trees: trees.threads(limit))
    listed = [{"thread": one.id, "title": one.title, "created_at": one.created_at} for one in found]
    ids = short_ids(one.id for one in found)
    width = max(map(len, ids.values()), default=0)
    lines = [
        f"{ids[one.id]:{width}}  {local_time(one.created_at)}  {one.title}".rstrip()
        for one in found
    ]
    none = ["There are no conversations yet. anabranch chat starts one."]
    print_either(listed, lines or none, as_json=json)


@tree_app.command(name="show", help_epilogue=example("anabranch tree show last"))
def show_command(thread: Thread, /, *, store: Store = None) -> None:
    """Draw a thread: a line for each node, with branches, labels and the head."""
    tree = stored_tree(thread, store)
    columns = get_terminal_size().columns if sys.stdout.isatty() else None
    print_text(
        "\n".join(
            [
                f"{tree.thread.id}  {tree.thread.title}".rstrip(),
                *draw(tree, here=tree.refs.get(HEAD), columns=columns),
            ]
        )
    )


@tree_app.command(
    name="export", help_epilogue=example("anabranch tree export last --format markdown")
)
def export_command(
    thread: Thread,
    /,
    *,
    form: Annotated[
        Literal["json", "mermaid", "markdown"], Parameter(name="--format", help="Output format.")
    ] = "json",
    store: Store = None,
) -> None:
    """Print a whole thread: as JSON, as a Mermaid flowchart, or as Markdown."""
    tree = stored_tree(thread, store)
    if form == "json":
        print_json(tree_to_json(tree))
    else:
        text = to_mermaid(tree) if form == "mermaid" else to_markdown(tree)
        print_text(text.removesuffix("\n"))


@tree_app.command(name="messages", help_epilogue=example("anabranch tree messages node_1a2b"))
def messages_command(
    node: Annotated[
        str,
        Parameter(help="Id of a node, or its beginning; “last” for the end of the latest thread."),
    ],
    /,
    *,
    store: Store = None,
) -> None:
    """Print the messages that a provider would receive at a node, as a JSON list."""

    async def work(trees: TreeStore) -> list[dict[str, object]]:
        path = await trees.path(await find_node_id(trees, node) or node)
        messages = project(path.nodes, path.results)
        return messages_to_json(await load_files(trees, path.nodes[-1].thread_id, messages))

    print_json(with_store(open_tree_store, store, work))


@tree_app.command(name="label", help_epilogue=example("anabranch tree label last b1 draft"))
def label_command(
    thread: Thread,
    node: Node,
    name: Annotated[str, Parameter(help="Label to give to the node.")],
    /,
    *,
    store: Store = None,
) -> None:
    """Label a node, or move an existing label to the node."""

    async def work(trees: TreeStore) -> dict[str, str]:
        tree = await _tree(trees, thread)
        found = _found(tree, node)
        taken = is_branch_name(name) or any(one.id == name for one in tree.nodes)
        if name not in tree.refs and taken:
            raise FailedError(
                f"{name!r} is already an id or a branch name in the thread {thread!r}. Choose another label."
            )
        await trees.set_ref(tree.thread.id, Ref(name, found))
        return await trees.refs(tree.thread.id)

    _check_label(name)
    print_json(with_store(open_tree_store, store, work))


@tree_app.command(name="unlabel", help_epilogue=example("anabranch tree unlabel last draft"))
def unlabel_command(
    thread: Thread,
    name: Annotated[str, Parameter(help="Label to remove.")],
    /,
    *,
    store: Store = None,
) -> None:
    """Remove a label; the node stays."""

    async def work(trees: TreeStore) -> dict[str, str]:
        thread_id = await _thread_id(trees, thread)
        if not await trees.delete_ref(thread_id, name):
            raise FailedError(f"The thread {thread!r} has no label {name!r}.")
        return await trees.refs(thread_id)

    _check_label(name)
    print_json(with_store(open_tree_store, store, work))


@tree_app.command(name="prune", help_epilogue=example("anabranch tree prune last b1"))
def prune_command(
    thread: Thread,
    node: Annotated[
        str | None,
        Parameter(
            help="Node to delete, with everything after it: an id, a label, or the name of a branch, "
            "which means its first node."
        ),
    ] = None,
    /,
    *,
    yes: Yes = False,
    store: Store = None,
) -> None:
    """Delete a thread, or a node and everything after it. This cannot be undone.

    The command lists the nodes that it would delete, and asks first. If the thread's head is
    deleted, the head moves to the node before the deleted nodes, if any.
    """

    async def work(trees: TreeStore) -> dict[str, int]:
        tree = await _tree(trees, thread)
        first = _opening(tree, node) if node is not None else None
        await confirm(_losses(tree, first), "Delete it?", "Nothing was deleted.", yes=yes)
        if first is not None:
            return {"deleted": await _cut(trees, tree, first)}
        await trees.delete_thread(tree.thread.id)
        return {"deleted": len(tree.nodes)}

    print_json(with_store(open_tree_store, store, work))


# -- shared by the commands ------------------------------------------------------------------


def stored_tree(thread: str, store: str | None) -> Tree:
    return with_store(open_tree_store, store, partial(_tree, thread_id=thread))


async def _tree(trees: TreeStore, thread_id: str) -> Tree:
    return await trees.tree(await _thread_id(trees, thread_id))


async def _thread_id(trees: TreeStore, name: str) -> str:
    found = await find_thread(trees, name)
    if found is None and name == LATEST:
        raise UsageError("There is no conversation yet. anabranch chat starts one.")
    return found or name


def _losses(tree: Tree, first: str | None) -> str:
    gone: set[str] = set()
    for node in tree.nodes:  # parents come before children
        if first is None or node.id == first or node.parent_id in gone:
            gone.add(node.id)
    branches = name_branches(tree.nodes)
    names = [name for name, node_id in branches.first.items() if name and node_id in gone]
    labels = [name for name, node_id in tree.refs.items() if name != HEAD and node_id in gone]
    parts = [counted(len(gone), "node")]
    for one, several, gone_too in (("branch", "branches", names), ("label", "labels", labels)):
        if gone_too:
            what = one if len(gone_too) == 1 else several
            parts.append(f"the {what} {', '.join(gone_too)}")
    title = f" ({tree.thread.title})" if tree.thread.title else ""
    where = "all of" if first is None else "from"
    return f"This deletes {where} {tree.thread.id}{title}: {'; '.join(parts)}."


def _found(tree: Tree, node: str) -> str:
    with failing_as(FailedError, AmbiguousIdError):
        found = find_node(tree, node)
    if found is None:
        raise FailedError(
            f"The thread {tree.thread.id!r} has no node {node!r}. Give an id, a label, or a branch:"
            " anabranch tree show lists them."
        )
    return found


def _opening(tree: Tree, name: str) -> str:
    opening = name_branches(tree.nodes).first.get(name) if name else None
    return opening or _found(tree, name)


async def _cut(trees: TreeStore, tree: Tree, node_id: str) -> int:
    deleted = await trees.delete_subtree(node_id)
    parent_id = next(node.parent_id for node in tree.nodes if node.id == node_id)
    left = await trees.refs(tree.thread.id)
    if HEAD in tree.refs and HEAD not in left and parent_id is not None:
        await trees.set_ref(tree.thread.id, Ref(HEAD, parent_id))
    return deleted


def _check_label(name: str) -> None:
    if not name.strip() or name == HEAD:
        raise UsageError(
            f"{name!r} cannot be a label; {HEAD!r} follows the conversation automatically."
        )
