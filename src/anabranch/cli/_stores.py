"""The stores and the engine of a command's options, and the keys that seal open questions."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

from anabranch._terminal import FailedError, UsageError, failing_as
from anabranch.cli._options import data_folder, store_url
from anabranch.errors import StoreError, needs_extra

if TYPE_CHECKING:
    from anabranch._durable import RunEvents
    from anabranch.engines import Engine
    from anabranch.stores import CallStore
    from anabranch.tree import TreeStore

KEYS = "ANABRANCH_KEYS"
CALL_KEY = "ANABRANCH_CALL_KEY"
"""The variable in which ``call`` gives a key to its server, which ``KEYS`` overrides."""
SHORTEST = 32


def new_key() -> str:
    return secrets.token_hex(SHORTEST)


def read_keys(
    environment: Mapping[str, str],
    say: Callable[[str], None],
    data: Path | None = None,
    *,
    audience: str = "",
) -> list[str]:
    """Return the keys, newest first: the environment's, or else the file's, which may be new.

    All servers of a user share the file: keys are derived for ``audience``, so that no server
    accepts another's state.
    """
    given = environment.get(KEYS, environment.get(CALL_KEY))
    if given is not None:
        return _checked(given, KEYS)
    path = (data or data_folder()) / "keys"
    try:
        stored = _checked(_read_or_create(path), str(path))
    except OSError as error:
        say(
            f"Cannot store a key in {path} ({error.strerror}): questions that are open will not"
            f" survive a restart. Set {KEYS} to change that."
        )
        return [new_key()]
    return [hmac.new(key.encode(), audience.encode(), sha256).hexdigest() for key in stored]


def _read_or_create(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        # Written in full under another name and then linked: of two servers that start at the same
        # time, one wins and neither reads half a key. The file has its mode from the first byte on.
        draft = path.with_name(f"keys.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(new_key())
            with suppress(FileExistsError):
                path.hardlink_to(draft)
        finally:
            draft.unlink()
    return path.read_text("utf-8")


def _checked(text: str, name: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if not keys or any(len(key.encode()) < SHORTEST for key in keys):
        raise UsageError(
            f"{name} must hold keys of at least {SHORTEST} characters, separated by commas."
        )
    return keys


class _Store(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Store)
T = TypeVar("T")


class Stores(NamedTuple):
    calls: CallStore
    trees: TreeStore
    events: RunEvents

    @classmethod
    def at(cls, url: str) -> Stores:
        from anabranch.stores import open_run_events, open_stores

        calls, trees = open_stores(url)
        return cls(calls, trees, open_run_events(trees))

    async def close(self) -> None:
        await self.calls.close()


def with_store(opened: Callable[[str], S], url: str | None, work: Callable[[S], Awaitable[T]]) -> T:
    """Open a store with data, return ``work(store)``, and close it; unknown names fail the command."""
    from anabranch._durable import NoSuchCallError
    from anabranch._terminal import run_command
    from anabranch.tree import AmbiguousIdError

    async def run() -> T:
        with failing_as(UsageError, StoreError):
            store = opened(_stored_at(url))
        try:
            with failing_as(FailedError, StoreError, AmbiguousIdError, NoSuchCallError):
                return await work(store)
        finally:
            await store.close()

    return run_command(run)


def _stored_at(given: str | None) -> str:
    """Return the URL of a store with data, and make no file; a new user's default store is empty."""
    with needs_extra("stores", "A store", StoreError):
        from anabranch.stores import read_url
    url = store_url(given)
    target = read_url(url)
    if target.kind != "sqlite" or not _is_missing(path := Path(str(target.url.database))):
        return url
    if not given:
        return "memory:"
    raise UsageError(
        f"There is no file {path}, which the store {target.label} names. Check the path: serve, chat,"
        " web and worker make the file."
    )


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # opening the store reports it
        return False
    return False


DBOS = "dbos"


def open_engine(name: str | None, store: str) -> Engine | None:
    if name is None or name in {"", "in-process"}:
        return None
    place, options, schema = _schema_of(name)
    if place != DBOS and "://" not in place:
        raise UsageError(f"There is no engine {name!r}. Give in-process, dbos or postgresql://…")
    if place == DBOS and options:
        raise UsageError(f"An engine in the --store has the option schema; not {options!r}.")
    url = f"{place}?{options}" if options else place
    if place == DBOS:
        url = store
    with needs_extra("dbos", "The engine", UsageError):
        from anabranch.engines import DBOSEngine
    with failing_as(UsageError, StoreError):
        return DBOSEngine(url, schema=schema)


def _schema_of(name: str) -> tuple[str, str, str]:
    """Split the text of ``--engine``: the part before ``?``, other options, and the schema."""
    place, _, query = name.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    schema = dict(given).get("schema", DBOS)
    if re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema) is None:
        raise UsageError(
            f"A schema has up to 63 lower-case letters, digits and underscores, not {schema!r}."
        )
    others = "&".join(each for each in query.split("&") if not each.startswith("schema="))
    return place, others, schema
