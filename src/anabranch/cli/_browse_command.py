"""``anabranch browse``: a stored conversation on a full screen."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import FailedError, LeftError, UsageError
from anabranch.cli._options import Store
from anabranch.cli._output import print_text
from anabranch.errors import needs_extra

INSTEAD = "anabranch tree show works without it."


def browse_command(
    thread: Annotated[
        str | None, Parameter(help="Id of a conversation, or its beginning. Default: the latest.")
    ] = None,
    /,
    *,
    store: Store = None,
) -> None:
    from anabranch._terminal import Console, run_command
    from anabranch.cli._tree_commands import stored_tree
    from anabranch.tree import LATEST

    tree = stored_tree(thread or LATEST, store)
    with needs_extra("tui", "Browsing", UsageError, instead=INSTEAD):
        from anabranch.cli._browser import Browser
    if not Console().interactive:
        raise UsageError(f"There is no terminal to browse at. {INSTEAD}")
    browser = Browser(tree)
    node_id = run_command(browser.run_async)
    if browser.return_code == LeftError.status:
        raise LeftError
    if node_id is None:
        return
    if tree.thread.owner is not None:
        raise FailedError(
            f"The conversation {tree.thread.id!r} belongs to a user of a web application,"
            " and cannot be continued here."
        )
    print_text(command_for(tree.thread.id, node_id, store))


def command_for(thread_id: str, node_id: str, store: str | None) -> str:
    words = ["anabranch", "chat", "--thread", thread_id, "--at", node_id]
    return shlex.join([*words, "--store", store] if store else words)
