"""Prompts that a person has saved under names, in a JSON file or for the session only."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from anabranch.chat._session.private_file import replace_file
from anabranch.chat._session.session_output import SessionError

_PROMPTS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


class SavedPrompts:
    """Prompts by name.

    Args:
        path: the file; without one, the prompts last as long as this object.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._unsaved: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return all prompts by name.

        Raises:
            SessionError: the file cannot be read, or contains something else.
        """
        if self._path is None:
            return dict(self._unsaved)
        try:
            return _PROMPTS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError):
            raise SessionError(
                f"Cannot read the saved prompts in {self._path}. Move the file away to start again."
            ) from None

    def write(self, prompts: dict[str, str]) -> None:
        """Replace all prompts.

        Raises:
            SessionError: the file cannot be written; its former content is still there.
        """
        if self._path is None:
            self._unsaved = dict(prompts)
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(prompts, indent=2).encode())
        except OSError as error:
            raise SessionError(
                f"Cannot store prompts in {self._path}: {error.strerror}."
            ) from error
