"""Commands that move the cursor through the tree, without a request to a model or a new node."""

from __future__ import annotations

from functools import partial

from anabranch.chat._terminal.session import Command, Outputs, Session
from anabranch.chat._terminal.session_output import Output, SessionError, preview
from anabranch.chat._terminal.typed_input import number_in
from anabranch.tree import HEAD, AmbiguousIdError, Navigator, Node, Ref, glimpse, is_branch_name


async def _up(session: Session) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    if cursor.node_id is None:
        raise SessionError("This is the beginning.")
    return await cursor.go(walk.above(cursor.node_id))


async def _down(session: Session, number: str | None = None) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    below = walk.below(cursor.node_id)
    if not below:
        raise SessionError("This is where the conversation ends.")
    if number is None and len(below) > 1:
        listed = "\n".join(f"{n}. {_glimpse(walk, node)}" for n, node in enumerate(below, 1))
        return Output("system", f"{listed}\n/down N goes to one of them.")
    return await cursor.go(below[number_in(number or "1", len(below))].id)


async def _go_to_sibling(session: Session, step: int) -> Outputs:
    """Go to a sibling of the nearest node, from the cursor up, that has one."""
    cursor = session.cursor
    walk = await cursor.walk()
    place = cursor.node_id
    while place is not None:
        siblings, at = walk.siblings(place)
        if len(siblings) > 1:
            return await cursor.go(siblings[(at + step) % len(siblings)].id)
        place = walk.above(place)
    raise SessionError("No message above has another branch.")


_left = partial(_go_to_sibling, step=-1)
_right = partial(_go_to_sibling, step=1)


async def _root(session: Session) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    place = cursor.node_id
    if place is None:
        return await cursor.go(walk.below(None)[0].id)
    while (above := walk.above(place)) is not None:
        place = above
    return await cursor.go(place)


async def _last_fork(session: Session) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    try:
        return await cursor.go(walk.last_fork(cursor.node_id))
    except LookupError:
        raise SessionError("No message above has several branches.") from None


async def _next_fork(session: Session) -> Outputs:
    cursor = session.cursor
    fork = (await cursor.walk()).next_fork(cursor.node_id)
    if fork is None:
        raise SessionError("No fork lies below.")
    return await cursor.go(fork)


async def _leaf(session: Session, number: str | None = None) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    leaves = walk.leaves(cursor.node_id)
    if number is not None:
        return await cursor.go(leaves[number_in(number, len(leaves))].id)
    listed = "\n".join(f"{n}. {preview(walk, node)}" for n, node in enumerate(leaves, 1))
    return Output("system", f"{listed}\n/leaf N goes to one of them.")


async def _label(session: Session, name: str | None = None) -> Outputs:
    cursor = session.cursor
    walk = await cursor.walk()
    if name is None:
        listed = [
            f"{label}: {_glimpse(walk, walk.nodes[node_id])}"
            for node_id, labels in walk.labels.items()
            for label in labels
        ]
        return Output("system", "\n".join(listed) or "There are no labels. /label NAME sets one.")
    if name in walk.tree.refs and name != HEAD:
        return await cursor.go(walk.tree.refs[name])
    if name == HEAD or is_branch_name(name) or name in walk.nodes:
        raise SessionError(f"The name {name!r} is taken here. Choose another.")
    if cursor.node_id is None:
        raise SessionError("A label needs a node, and this conversation has none yet.")
    await session.store.set_ref(cursor.thread_id, Ref(name, cursor.node_id))
    return Output("system", f"This node now has the label {name!r}; /label {name} returns here.")


async def _unlabel(session: Session, name: str) -> Outputs:
    await session.cursor.walk()
    store, thread_id = session.store, session.cursor.thread_id
    if name == HEAD or not await store.delete_ref(thread_id, name):
        raise SessionError(f"Unknown label {name!r}. /label lists the labels.")
    return Output("system", f"Removed the label {name!r}.")


async def _fork(session: Session, name: str) -> Outputs:
    try:
        node = (await session.cursor.walk()).find(name)
    except AmbiguousIdError as error:
        raise SessionError(str(error)) from None
    if node is None:
        raise SessionError(f"This thread has no node, label or branch {name!r}. /tree shows them.")
    return await session.cursor.go(node.id)


async def _undo(session: Session) -> Outputs:
    return await session.cursor.undo()


def _glimpse(walk: Navigator, node: Node) -> str:
    branch = walk.branch_of(node.id)
    return f"[{branch}] {glimpse(node)}" if branch else glimpse(node)


NAVIGATION_COMMANDS = (
    Command("up", "", "Go back to the answer before this one.", _up),
    Command("down", "[N]", "Go to the next answer; if there are several, to the Nth.", _down),
    Command("left", "", "Go to the previous branch; from the first to the last.", _left),
    Command("right", "", "Go to the next branch; from the last to the first.", _right),
    Command("root", "", "Go to the first answer.", _root),
    Command(
        "lastfork", "", "Go back to the nearest answer that several branches follow.", _last_fork
    ),
    Command("nextfork", "", "Go to the next answer that several branches follow.", _next_fork),
    Command("leaf", "[N]", "List the ends of all branches below, or go to the Nth.", _leaf),
    Command("label", "[NAME]", "Label this node, go to a label, or list the labels.", _label),
    Command("unlabel", "NAME", "Remove a label; its node stays.", _unlabel),
    Command("fork", "NODE", "Go to any node, by its id, label or branch name.", _fork),
    Command("undo", "", "Go back to where you were before; nothing is deleted.", _undo),
)
