"""``anabranch tree``: the commands that show, label, export and prune stored conversations.

The forms in which a thread is printed are those of ``anabranch.tree``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Literal, TypeVar

from cyclopts import App, Parameter

from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import run_command
from anabranch.cli._options import Store, store_url
from anabranch.cli._output import print_json, print_text
from anabranch.errors import StoreError
from anabranch.stores import open_tree_store
from anabranch.tree import (
    HEAD,
    Ref,
    Tree,
    TreeStore,
    draw,
    find_node,
    messages_to_json,
    name_branches,
    project,
    to_markdown,
    to_mermaid,
    tree_to_json,
)

__all__ = ["tree_app"]

T = TypeVar("T")

tree_app: App = App(name="tree", help_format="markdown")

Thread = Annotated[str, Parameter(help="The thread's id.")]
Node = Annotated[str, Parameter(help="A node: its id, a label, or a branch's name (b1, b1.2).")]


@tree_app.command(name="list")
def list_command(
    *,
    limit: Annotated[int, Parameter(help="The largest number to list.")] = 50,
    store: Store = None,
) -> None:
    """List the latest threads as JSON, the newest first."""

    async def work(trees: TreeStore) -> list[dict[str, object]]:
        return [
            {"thread": one.id, "title": one.title, "created_at": one.created_at}
            for one in await trees.threads(limit)
        ]

    if limit < 0:
        raise UsageError("--limit is a number of threads, 0 or more.")
    print_json(_with_store(store, work))


@tree_app.command(name="show")
def show_command(thread: Thread, /, *, store: Store = None) -> None:
    """Draw a thread: a line for each node, with branches, labels and the head."""
    tree = _with_store(store, partial(_tree, thread_id=thread))
    print_text("\n".join([f"{tree.thread.id}  {tree.thread.title}".rstrip(), *draw(tree)]))


@tree_app.command(name="export")
def export_command(
    thread: Thread,
    /,
    *,
    form: Annotated[
        Literal["json", "mermaid", "markdown"], Parameter(name="--format", help="The format.")
    ] = "json",
    store: Store = None,
) -> None:
    """Print a whole thread: as JSON, as a Mermaid flowchart, or as Markdown."""
    tree = _with_store(store, partial(_tree, thread_id=thread))
    if form == "json":
        print_json(tree_to_json(tree))
    else:
        text = to_mermaid(tree) if form == "mermaid" else to_markdown(tree)
        print_text(text.removesuffix("\n"))


@tree_app.command(name="messages")
def messages_command(
    node: Annotated[str, Parameter(help="The node's id.")], /, *, store: Store = None
) -> None:
    """Print, as JSON, the messages that would be sent to a provider from a node."""

    async def work(trees: TreeStore) -> list[dict[str, object]]:
        path = await trees.path(node)
        return messages_to_json(project(path.nodes, path.results))

    print_json(_with_store(store, work))


@tree_app.command(name="label")
def label_command(thread: Thread, node: Node, name: str, /, *, store: Store = None) -> None:
    """Label a node; a label that exists already is moved."""

    async def work(trees: TreeStore) -> dict[str, str]:
        tree = await _tree(trees, thread)
        found = _found(tree, node)
        if name not in tree.refs and find_node(tree, name) is not None:
            raise FailedError(
                f"{name!r} already names something else in the thread {thread!r}. Choose another label."
            )
        await trees.set_ref(thread, Ref(name, found))
        return await trees.refs(thread)

    _check_label(name)
    print_json(_with_store(store, work))


@tree_app.command(name="unlabel")
def unlabel_command(thread: Thread, name: str, /, *, store: Store = None) -> None:
    """Remove a label; the node stays."""

    async def work(trees: TreeStore) -> dict[str, str]:
        if not await trees.delete_ref(thread, name):
            raise FailedError(f"The thread {thread!r} has no label {name!r}.")
        return await trees.refs(thread)

    _check_label(name)
    print_json(_with_store(store, work))


@tree_app.command(name="prune")
def prune_command(
    thread: Thread,
    node: Annotated[
        str | None,
        Parameter(
            help="Delete this node and everything after it: an id, a label, or the name of a"
            " branch, which stands for its first node."
        ),
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    """Delete a thread, or a node and everything after it. This cannot be undone.

    If the head is among them, it moves to the node before, if there is one.
    """

    async def work(trees: TreeStore) -> dict[str, int]:
        tree = await _tree(trees, thread)
        if node is None:
            await trees.delete_thread(thread)
            return {"deleted": len(tree.nodes)}
        return {"deleted": await _cut(trees, tree, _opening(tree, node))}

    print_json(_with_store(store, work))


# -- shared by the commands ------------------------------------------------------------------


async def _tree(trees: TreeStore, thread_id: str) -> Tree:
    return await trees.tree(thread_id)


def _found(tree: Tree, node: str) -> str:
    found = find_node(tree, node)
    if found is None:
        raise FailedError(
            f"The thread {tree.thread.id!r} has no node {node!r}: name one by its id, a label, or a"
            " branch; anabranch tree show has them."
        )
    return found


def _opening(tree: Tree, name: str) -> str:
    """Return the node that ``name`` stands for; for a branch, its first."""
    if not name or name in tree.refs:
        return _found(tree, name)
    return name_branches(tree.nodes).first.get(name) or _found(tree, name)


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


def _with_store(url: str | None, work: Callable[[TreeStore], Awaitable[T]]) -> T:
    """Open the store, and return what ``work`` returns."""

    async def run() -> T:
        async with _open_trees(store_url(url)) as trees:
            return await work(trees)

    return run_command(run)


@asynccontextmanager
async def _open_trees(url: str) -> AsyncGenerator[TreeStore]:
    try:
        trees = open_tree_store(url)
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        yield trees
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        await trees.close()
