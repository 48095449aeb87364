"""``anabranch browse``: a stored conversation on a full screen.

Chooses the thread to show, and prints the command that continues it. The screen itself is
``_browser.py``, which needs the extra ``tui``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch._terminal import FailedError, LeftError, UsageError
from anabranch.cli._option_values import store_url
from anabranch.cli._options import Store
from anabranch.cli._output import print_text
from anabranch.errors import StoreError, needs_extra

if TYPE_CHECKING:
    from anabranch.tree import Tree

INSTEAD = "anabranch tree show works without it."


def browse_command(
    thread: Annotated[
        str | None,
        Parameter(help="Id of a conversation, or its beginning. Default: the latest."),
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    """Run the command."""
    from anabranch._terminal import run_command

    command = run_command(browse, thread, store)
    if command is not None:
        print_text(command)


async def browse(thread: str | None, store: str | None) -> str | None:
    """Show a thread, by default the latest; return the command that continues it, if chosen."""
    from anabranch._terminal import Console

    tree = await _tree(thread, store)
    with needs_extra("tui", "Browsing", UsageError, instead=INSTEAD):
        from anabranch.cli._browser import Browser
    if not Console().interactive:
        raise UsageError(f"There is no terminal to browse at. {INSTEAD}")
    browser = Browser(tree)
    node_id = await browser.run_async()
    if browser.return_code == LeftError.status:
        raise LeftError
    if node_id is not None and tree.thread.owner is not None:
        raise FailedError(
            f"The conversation {tree.thread.id!r} belongs to a user of a web application,"
            " and cannot be continued here."
        )
    return command_for(tree.thread.id, node_id, store) if node_id is not None else None


def command_for(thread_id: str, node_id: str, store: str | None) -> str:
    """Return the command that continues a conversation at one of its nodes."""
    words = ["anabranch", "chat", "--thread", thread_id, "--at", node_id]
    return shlex.join([*words, "--store", store] if store else words)


async def _tree(thread: str | None, store: str | None) -> Tree:
    from anabranch.stores import open_tree_store
    from anabranch.tree import LATEST, AmbiguousIdError, find_thread

    try:
        trees = open_tree_store(store_url(store))
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        found = await find_thread(trees, thread or LATEST)
        if found is None and thread in {None, LATEST}:
            raise UsageError("There is no conversation yet. anabranch chat starts one.")
        return await trees.tree(found or str(thread))
    except (StoreError, AmbiguousIdError) as error:
        raise FailedError(str(error)) from error
    finally:
        await trees.close()
