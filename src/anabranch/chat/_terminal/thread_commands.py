"""Commands about whole conversations: /tree, /threads, /thread, /save and /load.

These commands skip conversations with an owner, because they belong to the users of a web application.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from anyio import to_thread

from anabranch._aio import run_shielded
from anabranch.agents import random_names
from anabranch.chat._terminal.session import Command, Outputs, Session
from anabranch.chat._terminal.session_output import Output, SessionError
from anabranch.chat._terminal.typed_input import typed_paths
from anabranch.errors import StoreError
from anabranch.messages import Block, ResultBlock
from anabranch.tree import (
    HEAD,
    AmbiguousIdError,
    LoadedThread,
    TreeStore,
    digests_in,
    draw,
    find_thread,
    local_time,
    short_ids,
    store_files,
    thread_from_json,
    thread_to_json,
)

MAX_LISTED = 20
B = TypeVar("B", Block, ResultBlock)


async def _tree(session: Session) -> Outputs:
    cursor = session.cursor
    await cursor.walk()
    tree = await session.store.tree(cursor.thread_id)
    refs = {name: node_id for name, node_id in tree.refs.items() if name != HEAD}
    head = {} if cursor.node_id is None else {HEAD: cursor.node_id}
    tree = replace(tree, refs={**refs, **head})
    columns = session.columns
    lines = draw(
        tree,
        width=session.settings.width,
        here=cursor.node_id,
        columns=None if columns is None else columns(),
    )
    return Output("system", "\n".join(lines))


async def _threads(session: Session) -> Outputs:
    current = session.cursor.thread_id
    threads = await session.store.threads_of(None, MAX_LISTED)
    ids = short_ids(thread.id for thread in threads)
    lines: list[str] = []
    for thread in threads:
        mark = "*" if thread.id == current else " "
        line = f"{mark} {ids[thread.id]}  {local_time(thread.created_at)}  {thread.title}"
        lines.append(line.rstrip())
    return Output("system", "\n".join(lines) or "There are no conversations yet.")


async def _thread(session: Session, thread_id: str | None = None) -> Outputs:
    if thread_id is None:
        return await session.cursor.open(session.agent.dependencies.naming("thread"))
    try:
        found = await find_thread(session.store, thread_id, without_owner=True)
    except AmbiguousIdError as error:
        raise SessionError(str(error)) from None
    if found is None:
        raise SessionError(f"Unknown thread {thread_id!r}. /threads lists the latest.")
    return await session.cursor.open(found)


async def _save(session: Session, name: str) -> Outputs:
    await session.cursor.walk()
    store, thread_id = session.store, session.cursor.thread_id
    tree = await store.tree(thread_id)
    contents: list[Sequence[Block]] = [node.content for node in tree.nodes]
    for result in tree.results.values():
        contents += [result.content, result.pending or ()]
    files = await store.files(thread_id, digests_in(contents))
    text = json.dumps(thread_to_json(tree, files), indent=2).encode()
    await to_thread.run_sync(write_thread_file, Path(name), text)
    return Output("system", f"Saved in {name}; /load {name} loads it.")


async def _load(session: Session, name: str) -> Outputs:
    given = session.agent.dependencies
    try:
        text = await to_thread.run_sync(_read_file, name)
        loaded = thread_from_json(text, given.naming, given.clock.now())
    except OSError as error:
        raise SessionError(f"Cannot read {name}: {error.strerror}.") from None
    except ValueError as error:
        raise SessionError(f"{name} holds no conversation: {error}.") from None
    await given.store.create_thread(loaded.thread)
    try:
        await _fill(given.store, loaded)
    except BaseException:
        # A failed load must not leave an empty conversation in the list.
        with suppress(StoreError):
            await run_shielded(given.store.delete_thread(loaded.thread.id))
        raise
    return await session.cursor.open(loaded.thread.id)


async def _fill(store: TreeStore, loaded: LoadedThread) -> None:
    """Store a loaded thread, with its base64 files as separate files."""

    async def stored(content: Iterable[B]) -> tuple[B, ...]:
        return await store_files(store, loaded.thread.id, content)

    if loaded.files:
        await store.add_files(loaded.thread.id, loaded.files)
    nodes = [replace(node, content=await stored(node.content)) for node in loaded.nodes]
    results = [
        replace(
            each,
            content=await stored(each.content),
            pending=None if each.pending is None else await stored(each.pending),
        )
        for each in loaded.results
    ]
    if nodes:
        await store.append(nodes, results=results, refs=loaded.refs)


def _read_file(name: str) -> bytes:
    return typed_paths(name)[0].read_bytes()


def write_thread_file(path: Path, text: bytes) -> None:
    """Write a saved conversation atomically, with mode 0600; replace no other kind of file."""
    path = path.expanduser()
    try:
        if path.exists() and not _is_thread_file(path):
            raise SessionError(f"{path} exists but is no saved conversation. Choose another name.")
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise SessionError(f"Cannot write {path}: {error.strerror}.") from None


def _is_thread_file(path: Path) -> bool:
    try:
        thread_from_json(path.read_bytes(), random_names, 0.0)
    except ValueError:
        return False
    return True


THREAD_COMMANDS = (
    Command("tree", "", "Draw the whole conversation, with its branches and labels.", _tree),
    Command("threads", "", "List the latest conversations.", _threads),
    Command("thread", "[ID]", "Go to another conversation, or start a conversation.", _thread),
    Command("save", "FILE…", "Save the conversation with all its branches in a file.", _save),
    Command("load", "FILE…", "Load a conversation from a file, as a new conversation.", _load),
)
