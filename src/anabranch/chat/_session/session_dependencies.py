"""The dependencies of a session: a store, a model, tools, a person, limits, saved prompts, time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anabranch._aio import Clock, SystemClock
from anabranch._asking.host import Capabilities
from anabranch._budget import UNLIMITED, Limits
from anabranch.agents import (
    Absent,
    AgentTool,
    Answerer,
    CallStore,
    Durability,
    Listener,
    Model,
    Naming,
    ToolSource,
    TurnLimits,
    ignore_event,
    random_names,
)
from anabranch.chat._session.saved_prompts import SavedPrompts
from anabranch.tool import Tool
from anabranch.tree import TreeStore


class ModelCatalogue(Protocol):
    """The models that a session can switch to."""

    def open(self, name: str) -> Model:
        """Return the model of that name.

        Raises:
            ModelError: it cannot be opened.
        """
        ...

    def names(self) -> Sequence[str]:
        """Return the names that are known; a model with another name may exist, too."""
        ...


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """The surroundings in which a session runs.

    Attributes:
        store: stores the threads.
        model: the model that replies at first.
        model_name: the name of that model.
        tools: what the model, and the person, may call.
        person: answers the questions of tools.
        limits: of each turn, at first.
        tool_limits: of each call of a tool, in addition to the tool's own.
        listener: receives the events of each turn.
        models: the models that the session can switch to, if there are others.
        prompts: the prompts that the person has saved.
        clock: gives the time.
        naming: names threads and nodes.
        capabilities: what tools may ask for; by default, what ``person`` and the model can answer.
        calls: stores the calls of tools, if they are to survive a crash and to expire.
        system_prompt: of the threads that the session begins.
        columns: returns the width of the person's screen, if ``/help`` has to fit on one.
    """

    store: TreeStore
    model: Model
    model_name: str = "none"
    tools: Sequence[Tool[Any] | AgentTool | ToolSource] = ()
    person: Answerer = field(default_factory=Absent)
    limits: TurnLimits = field(default_factory=TurnLimits)
    tool_limits: Limits = UNLIMITED
    listener: Listener = ignore_event
    models: ModelCatalogue | None = None
    prompts: SavedPrompts = field(default_factory=SavedPrompts)
    clock: Clock = field(default_factory=SystemClock)
    naming: Naming = random_names
    capabilities: Capabilities | None = None
    calls: CallStore | Durability | None = None
    system_prompt: str | None = None
    columns: Callable[[], int] | None = None
