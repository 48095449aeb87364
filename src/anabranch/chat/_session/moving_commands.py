"""Commands that move through the tree. Nothing is said, and nothing but the head changes."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.chat._session.command_table import Outputs, command
from anabranch.chat._session.node_text import preview
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.session import Session
from anabranch.tree import HEAD, Navigator, Node, Ref, glimpse

__all__ = ["number_in"]


@command("up", "", "Go back to the answer before this one.")
async def up(session: Session) -> Outputs:
    """Go to the place above."""
    walk = await session.walk()
    if session.cursor is None:
        raise SessionError("This is the beginning.")
    return await session.go(walk.above(session.cursor))


@command("down", "[N]", "Go on to the next answer; where there are several, to the Nth.")
async def down(session: Session, number: str | None = None) -> Outputs:
    """Go to a place below."""
    walk = await session.walk()
    onwards = walk.below(session.cursor)
    if not onwards:
        raise SessionError("This is where the conversation ends.")
    if number is None and len(onwards) > 1:
        listed = "\n".join(f"{n}. {_glimpse(walk, node)}" for n, node in enumerate(onwards, 1))
        return Output("system", f"{listed}\n/down N goes to one of them.")
    return await session.go(onwards[number_in(number or "1", onwards)].id)


@command("left", "", "Go to the branch before this one; from the first to the last.")
async def left(session: Session) -> Outputs:
    """Go to the sibling before."""
    return await _aside(session, -1)


@command("right", "", "Go to the branch after this one; from the last to the first.")
async def right(session: Session) -> Outputs:
    """Go to the sibling after."""
    return await _aside(session, 1)


async def _aside(session: Session, step: int) -> Outputs:
    """Go to a sibling; from inside of a branch, to the branch beside it."""
    walk = await session.walk()
    here = session.cursor
    while here is not None:
        places, at = walk.siblings(here)
        if len(places) > 1:
            return await session.go(places[(at + step) % len(places)].id)
        here = walk.above(here)
    raise SessionError("There is no other branch from here to the beginning.")


@command("root", "", "Go to the first answer.")
async def root(session: Session) -> Outputs:
    """Go to the first place of the way to the cursor."""
    walk = await session.walk()
    here = session.cursor
    if here is None:
        return await session.go(walk.below(None)[0].id)
    while (above := walk.above(here)) is not None:
        here = above
    return await session.go(here)


@command("lastfork", "", "Go back to the nearest answer that several branches follow on.")
async def last_fork(session: Session) -> Outputs:
    """Go to the nearest fork above."""
    walk = await session.walk()
    try:
        return await session.go(walk.last_fork(session.cursor))
    except LookupError:
        raise SessionError("There is no fork from here to the beginning.") from None


@command("nextfork", "", "Go on to the nearest answer that several branches follow on.")
async def next_fork(session: Session) -> Outputs:
    """Go to the nearest fork below."""
    walk = await session.walk()
    fork = walk.next_fork(session.cursor)
    if fork is None:
        raise SessionError("There is no fork below.")
    return await session.go(fork)


@command("leaf", "[N]", "List where all branches below have got to; or go to the Nth.")
async def leaf(session: Session, number: str | None = None) -> Outputs:
    """List the leaves below, or go to one."""
    walk = await session.walk()
    leaves = walk.leaves(session.cursor)
    if number is not None:
        return await session.go(leaves[number_in(number, leaves)].id)
    listed = "\n".join(f"{n}. {preview(walk, node)}" for n, node in enumerate(leaves, 1))
    return Output("system", f"{listed}\n/leaf N goes to one of them.")


@command("label", "[NAME]", "Give this place a name, or go to the place that has it; or list them.")
async def label(session: Session, name: str | None = None) -> Outputs:
    """List labels, make one here, or go to one."""
    walk = await session.walk()
    if name is None:
        listed = [
            f"{label}: {_glimpse(walk, walk.nodes[node_id])}"
            for node_id, labels in walk.labels.items()
            for label in labels
        ]
        return Output("system", "\n".join(listed) or "There are no labels. /label NAME makes one.")
    if name == HEAD or walk.find(name) is not None:
        if name in walk.tree.refs and name != HEAD:
            return await session.go(walk.tree.refs[name])
        raise SessionError(f"{name!r} is the name of something else here. Choose another.")
    if session.cursor is None:
        raise SessionError("There is nothing here yet that could have a name.")
    await session.world.store.set_ref(session.thread_id, Ref(name, session.cursor))
    return Output("system", f"This place is {name!r} now; /label {name} leads back to it.")


@command("unlabel", "NAME", "Take a name away; what it named stays.")
async def unlabel(session: Session, name: str) -> Outputs:
    """Delete a label."""
    await session.walk()
    if name == HEAD or not await session.world.store.delete_ref(session.thread_id, name):
        raise SessionError(f"There is no label {name!r}. /label lists them.")
    return Output("system", f"The label {name!r} is gone.")


@command("fork", "NODE", "Go to any node, by its id, label or branch name, and continue there.")
async def fork(session: Session, name: str) -> Outputs:
    """Go to any node."""
    walk = await session.walk()
    node = walk.find(name)
    if node is None:
        raise SessionError(
            f"There is no node, label or branch {name!r} in this thread. /tree shows them."
        )
    return await session.go(node.id)


@command("undo", "", "Go back to where you were before; nothing is deleted.")
async def undo(session: Session) -> Outputs:
    """Go back to the place before."""
    return await session.undo()


def number_in(text: str, things: Sequence[object]) -> int:
    """Return the index of the thing whose number, from 1 on, was typed.

    Raises:
        SessionError: there is none of this number.
    """
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= len(things):
        raise SessionError(f"{text!r} is not a number from 1 to {len(things)}.")
    return int(text) - 1


def _glimpse(walk: Navigator, node: Node) -> str:
    branch = walk.branch_of(node.id)
    return f"[{branch}] {glimpse(node)}" if branch else glimpse(node)
