"""``anabranch browse``: a stored conversation on a full screen.

Owns the way there and back: which thread is shown, and what is printed for the node at which the
person wants to go on. The screen itself is ``browser.py``'s, which needs the extra ``tui``.
"""

from __future__ import annotations

import shlex

from anabranch._terminal.exits import FailedError, UsageError
from anabranch.cli._store_option import store_url
from anabranch.errors import StoreError
from anabranch.stores import open_tree_store
from anabranch.tree import Tree

__all__ = ["browse", "command_for"]


async def browse(thread: str | None, store: str | None) -> str | None:
    """Show a thread, or the latest; return the command to go on with, ``None`` for none.

    Raises:
        CommandError: there is no such thread, or nothing to show it with.
    """
    tree = await _tree(thread, store)
    try:
        from anabranch.cli._browser import Browser  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise UsageError(
            f"To browse takes the package {missing.name!r}, which is not installed."
            ' Install "anabranch[tui]"; anabranch tree show needs nothing.'
        ) from missing
    node_id = await Browser(tree).run_async()
    return command_for(tree.thread.id, node_id, store) if node_id is not None else None


def command_for(thread_id: str, node_id: str, store: str | None) -> str:
    """Return the command that goes on with a conversation at one of its nodes."""
    words = ["anabranch", "chat", "--thread", thread_id, "--at", node_id]
    return shlex.join([*words, "--store", store] if store else words)


async def _tree(thread: str | None, store: str | None) -> Tree:
    try:
        trees = open_tree_store(store_url(store))
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        if thread is None:
            latest = await trees.threads(1)
            if not latest:
                raise UsageError("There is no conversation yet. anabranch chat begins one.")
            thread = latest[0].id
        return await trees.tree(thread)
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        await trees.close()
