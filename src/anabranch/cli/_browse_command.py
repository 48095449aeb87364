"""``anabranch browse``: a stored conversation on a full screen.

Chooses the thread to show, and prints the command that continues it. The screen itself is
``_browser.py``, which needs the extra ``tui``.
"""

from __future__ import annotations

import shlex
from typing import Annotated

import anyio
from cyclopts import Parameter

from anabranch._extras import needs_extra
from anabranch._terminal.exits import FailedError, UsageError
from anabranch.cli._options import Store, store_url
from anabranch.cli._output import print_text
from anabranch.errors import StoreError
from anabranch.stores import open_tree_store
from anabranch.tree import Tree

__all__ = ["browse", "browse_command", "command_for"]


def browse_command(
    thread: Annotated[
        str | None, Parameter(help="The conversation; the latest without it.")
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    """Run the command."""
    command = anyio.run(browse, thread, store)
    if command is not None:
        print_text(command)


async def browse(thread: str | None, store: str | None) -> str | None:
    """Show a thread, by default the latest; return the command that continues it, if it is wanted.

    Raises:
        CommandError: there is no such thread, or the extra ``tui`` is not installed.
    """
    tree = await _tree(thread, store)
    instead = "anabranch tree show works without it."
    with needs_extra("tui", "Browsing", UsageError, instead=instead):
        from anabranch.cli._browser import Browser  # noqa: PLC0415 - an extra
    node_id = await Browser(tree).run_async()
    return command_for(tree.thread.id, node_id, store) if node_id is not None else None


def command_for(thread_id: str, node_id: str, store: str | None) -> str:
    """Return the command that continues a conversation at one of its nodes."""
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
