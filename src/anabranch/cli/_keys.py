"""The keys that seal open questions: where they come from, so that they outlive the server.

They are those in ``ANABRANCH_KEYS``, or those in a file in the user's data directory, which is
created at the first start and readable by the user alone. A server that is started for one call has
a key of its own.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from platformdirs import user_data_path

from anabranch._terminal.exits import UsageError

KEYS = "ANABRANCH_KEYS"
CALL_KEY = "ANABRANCH_CALL_KEY"
"""By which ``call`` gives its key to the server that it starts: a default, as those in the file are."""
SHORTEST = 32


def new_key() -> str:
    """Return a key: 32 random bytes in hexadecimal."""
    return secrets.token_hex(SHORTEST)


def read_keys(
    environment: Mapping[str, str],
    say: Callable[[str], None],
    data: Path | None = None,
    *,
    audience: str = "",
) -> list[str]:
    """Return the keys, newest first: the environment's, or else the file's.

    The file is created if it is missing. Where that fails, ``say`` is called with a warning, and a
    new key is returned that is stored nowhere. The file is shared by all servers of a user: its
    keys are derived for ``audience``, so that no server accepts what another has sealed.

    Raises:
        UsageError: a key is too short.
    """
    given = environment.get(KEYS, environment.get(CALL_KEY))
    if given is not None:
        return _checked(given, KEYS)
    path = (data if data is not None else user_data_path("anabranch", appauthor=False)) / "keys"
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
        # Written in full under another name and then linked: of two servers that start at once,
        # one wins and neither reads half a key. The mode is right from the first byte on.
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
