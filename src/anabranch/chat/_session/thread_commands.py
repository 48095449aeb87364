"""Commands about what is kept: threads, the tree, files, prompts."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from anabranch._engine import to_the_end
from anabranch.agents._ports import random_names
from anabranch.chat._session.command_table import Outputs, command
from anabranch.chat._session.output import Output, SessionError
from anabranch.chat._session.session import Session
from anabranch.chat._session.talking_commands import say
from anabranch.errors import StoreError
from anabranch.tree import HEAD, draw, thread_from_json, thread_to_json

__all__ = ["write_saved"]

LATEST = 20
"""Threads that are listed."""


@command("tree", "", "Draw the whole conversation, with its branches and labels.")
async def tree(session: Session) -> Outputs:
    """Draw the tree."""
    known = (await session.walk()).tree
    refs = {name: node_id for name, node_id in known.refs.items() if name != HEAD}
    here = {} if session.cursor is None else {HEAD: session.cursor}
    lines = draw(replace(known, refs={**refs, **here}), width=session.settings.width)
    return Output("system", "\n".join(lines))


@command("threads", "", "List the latest conversations.")
async def threads(session: Session) -> Outputs:
    """List threads."""
    known = await session.world.store.threads(LATEST)
    lines = [
        f"{'*' if thread.id == session.thread_id else ' '} {thread.id}  {thread.title}".rstrip()
        for thread in known
    ]
    return Output("system", "\n".join(lines) or "There are no conversations yet.")


@command("thread", "[ID]", "Go to another conversation; without an ID, begin a new one.")
async def thread(session: Session, thread_id: str | None = None) -> Outputs:
    """Change the thread."""
    if thread_id is None:
        return await session.open(session.world.naming("thread"))
    if await session.world.store.thread(thread_id) is None:
        raise SessionError(f"There is no thread {thread_id!r}. /threads lists the latest.")
    return await session.open(thread_id)


@command("save", "FILE…", "Save the whole conversation, with all its branches, in a file.")
async def save(session: Session, name: str) -> Outputs:
    """Write the thread as JSON."""
    text = json.dumps(thread_to_json(await session.tree()), indent=2).encode()
    await to_thread.run_sync(write_saved, Path(name), text)
    return Output("system", f"Saved in {name}; /load {name} brings it back.")


@command("load", "FILE…", "Load a conversation from a file; it becomes a new one here.")
async def load(session: Session, name: str) -> Outputs:
    """Read a thread from JSON, and go to it."""
    try:
        text = await to_thread.run_sync(_read_saved, Path(name))
        loaded = thread_from_json(text, session.world.naming, session.world.clock.now())
    except OSError as error:
        raise SessionError(f"Cannot read {name}: {error.strerror}.") from None
    except ValueError as error:
        raise SessionError(f"{name} holds no conversation: {error}.") from None
    store = session.world.store
    await store.create_thread(loaded.thread)
    try:
        if loaded.nodes:
            await store.append(loaded.nodes, results=loaded.results, refs=loaded.refs)
    except BaseException:
        # What was not loaded is not to stand among the conversations as an empty one.
        with suppress(StoreError):
            await to_the_end(store.delete_thread(loaded.thread.id))
        raise
    return await session.open(loaded.thread.id)


def _read_saved(path: Path) -> bytes:
    return path.expanduser().read_bytes()


def write_saved(path: Path, text: bytes) -> None:
    """Write a file as a whole; only one of ours is replaced.

    Raises:
        SessionError: it cannot be written, or something else is there.
    """
    path = path.expanduser()
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        if path.exists() and not _is_ours(path):
            raise SessionError(f"{path} exists and is no saved conversation. Choose another name.")
        draft.write_bytes(text)
        draft.replace(path)
    except OSError as error:
        raise SessionError(f"Cannot write {path}: {error.strerror}.") from None


def _is_ours(path: Path) -> bool:
    try:
        thread_from_json(path.read_bytes(), random_names, 0.0)
    except ValueError:
        return False
    return True


@command("p", "[NAME]", "Say a saved prompt; without a name, list them.")
async def prompt(session: Session, name: str | None = None) -> Outputs:
    """Say a prompt that was saved."""
    saved = await to_thread.run_sync(session.world.prompts.read)
    if name is None:
        listed = [f"{each}: {' '.join(text.split())[:60]}" for each, text in sorted(saved.items())]
        return Output("system", "\n".join(listed) or "No prompts are saved. /s NAME saves one.")
    if name not in saved:
        raise SessionError(f"There is no saved prompt {name!r}. /p lists them.")
    return await say(session, saved[name])


@command("s", "NAME [TEXT…]", "Save a prompt; without a text, what you said last.")
async def save_prompt(session: Session, name: str, text: str | None = None) -> Outputs:
    """Save a prompt."""
    if text is None:
        walk = await session.walk()
        said = [node.text for node in walk.path(session.cursor) if node.kind == "user"]
        if not said:
            raise SessionError("Nothing has been said here yet.")
        text = said[-1]
    saved = await to_thread.run_sync(session.world.prompts.read)
    await to_thread.run_sync(session.world.prompts.write, {**saved, name: text})
    return Output("system", f"Saved; /p {name} says it.")


@command("d", "NAME", "Delete a saved prompt.")
async def delete_prompt(session: Session, name: str) -> Outputs:
    """Delete a prompt."""
    saved = await to_thread.run_sync(session.world.prompts.read)
    if saved.pop(name, None) is None:
        raise SessionError(f"There is no saved prompt {name!r}. /p lists them.")
    await to_thread.run_sync(session.world.prompts.write, saved)
    return Output("system", f"The prompt {name!r} is deleted.")
