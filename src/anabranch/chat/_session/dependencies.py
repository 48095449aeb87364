"""What a session needs of the world around it: a store, a model, a person, a drawer for prompts.

Owns these ports, and the plain ways to fill them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from anabranch._asking.answerer import Absent, Answerer
from anabranch._engine.clock import Clock, SystemClock
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._events import Listener, nobody
from anabranch.agents._ports import Model, Naming, random_names
from anabranch.agents._turn_limits import TurnLimits
from anabranch.chat._session.output import SessionError
from anabranch.tool import Tool
from anabranch.tree import TreeStore

__all__ = ["Models", "NoModels", "Prompts", "World"]

_PROMPTS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


class Models(Protocol):
    """The models that a session can switch to."""

    def open(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ModelError: it cannot be opened.
        """
        ...

    def names(self) -> Sequence[str]:
        """Return names that are known; others may be opened, too."""
        ...


class NoModels:
    """No model to switch to."""

    def open(self, name: str) -> Model:
        """Refuse."""
        raise SessionError(f"This session cannot switch to {name!r}: it has no other models.")

    def names(self) -> Sequence[str]:
        """Return none."""
        return ()


class Prompts:
    """Prompts that are kept under names.

    Args:
        path: the file, a JSON object; without one they are gone with the session.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._here: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Return all of them by name.

        Raises:
            SessionError: the file cannot be read, or holds something else.
        """
        if self._path is None:
            return dict(self._here)
        try:
            return _PROMPTS.validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValidationError):
            raise SessionError(
                f"Cannot read the saved prompts in {self._path}. Move the file away to begin anew."
            ) from None

    def write(self, prompts: dict[str, str]) -> None:
        """Keep these, and no others.

        Raises:
            SessionError: the file cannot be written; what it held is still there.
        """
        if self._path is None:
            self._here = dict(prompts)
            return
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(prompts, indent=2, ensure_ascii=False), "utf-8")
            draft.replace(self._path)
        except OSError as error:
            raise SessionError(f"Cannot keep prompts in {self._path}: {error.strerror}.") from error


@dataclass(frozen=True, slots=True)
class World:
    """What a session lives in.

    Attributes:
        store: where threads are kept.
        model: who answers, to begin with.
        model_name: what that model is called.
        tools: what the model, and the person, may call.
        person: who answers the questions of tools.
        limits: of each turn, to begin with.
        listener: told of what happens, as it happens.
        models: what can be switched to.
        prompts: those that are kept.
        clock: time.
        naming: names for threads and nodes.
    """

    store: TreeStore
    model: Model
    model_name: str = "none"
    tools: Sequence[Tool[Any] | AgentTool] = ()
    person: Answerer = field(default_factory=Absent)
    limits: TurnLimits = field(default_factory=TurnLimits)
    listener: Listener = nobody
    models: Models = field(default_factory=NoModels)
    prompts: Prompts = field(default_factory=Prompts)
    clock: Clock = field(default_factory=SystemClock)
    naming: Naming = random_names
