"""The settings of a session, and the store, model, tools, user, limits and clock that it works with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch._aio import Clock, SystemClock
from anabranch._asking import Absent, Answerer, Capabilities
from anabranch._budget import UNLIMITED, Limits
from anabranch._durable import CallStore, Durability
from anabranch._elicitation import describe
from anabranch.agents import (
    AgentTool,
    Listener,
    Model,
    Naming,
    ToolSource,
    TurnLimits,
    ignore_event,
    random_names,
)
from anabranch.chat._terminal.session_output import SessionError
from anabranch.tool import Tool
from anabranch.tree import TreeStore


class SessionSettings(BaseModel):
    """The settings of one session."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True, extra="forbid")

    verbose: bool = Field(default=True, description="show the work of tools and branches")
    width: int = Field(60, ge=10, le=1_000, description="characters of a message in /tree")
    auto_prompt: str = Field(
        "ok", min_length=1, description="the message that /auto sends to a model"
    )
    max_requests: int = Field(50, ge=1, description="requests to the model in a turn")
    max_tokens: int | None = Field(None, ge=1, description="tokens of a turn; none for any number")
    max_reply_tokens: int = Field(8_192, ge=1, description="tokens of one reply")
    max_depth: int = Field(4, ge=0, description="how deeply branches may be nested")
    max_branches_per_call: int = Field(50, ge=1, description="branches of one call of branch_self")
    max_concurrent_requests: int = Field(
        100, ge=1, description="requests to the model at the same time"
    )

    @classmethod
    def of(cls, limits: TurnLimits) -> SessionSettings:
        """Return default settings with these limits."""
        return cls(**{name: getattr(limits, name) for name in cls._limit_names()})

    def limits(self, base: TurnLimits) -> TurnLimits:
        """Return ``base`` with this session's limits."""
        return replace(base, **{name: getattr(self, name) for name in self._limit_names()})

    def change(self, name: str, text: str) -> None:
        """Set the setting ``name`` to the value typed as ``text``.

        Raises:
            SessionError: if no such setting exists, or the value is invalid.
        """
        if name not in type(self).model_fields:
            known = ", ".join(type(self).model_fields)
            raise SessionError(f"There is no setting {name!r}. Settings: {known}.")
        try:
            setattr(self, name, None if text.lower() == "none" else text)
        except ValidationError as error:
            raise SessionError(f"{describe(error)}.") from None

    def listing(self) -> str:
        """Return all settings with their values, one on each line."""
        fields = type(self).model_fields
        width = max(map(len, fields))
        return "\n".join(
            f"{name:{width}} = {_value_text(getattr(self, name))}  ({field.description})"
            for name, field in fields.items()
        )

    @classmethod
    def _limit_names(cls) -> set[str]:
        return set(cls.model_fields) & set(TurnLimits.__dataclass_fields__)


def _value_text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


class ModelCatalogue(Protocol):
    """The models that a session can switch to."""

    def open(self, name: str) -> Model:
        """Return the model with that name.

        Raises:
            ModelError: if the model cannot be opened.
        """
        ...

    def names(self) -> Sequence[str]:
        """Return the known names; other names may work."""
        ...


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """The surroundings in which a session runs.

    Attributes:
        store: stores the threads.
        model: the model that replies first.
        model_name: the name of that model.
        tools: the tools that the model and the user may call.
        user: answers the questions of tools.
        limits: the initial limits of each turn.
        tool_limits: the limits of each tool call, in addition to the tool's own.
        listener: receives the events of each turn.
        models: the models that the session can switch to, if there are others.
        clock: gives the time.
        naming: names threads and nodes.
        capabilities: the requests that tools may make; by default, those that ``user`` and the
            model can answer.
        calls: stores the calls of tools; by default, as for :class:`~anabranch.agents.Agent`.
        system_prompt: the system prompt of the threads that the session creates.
        columns: returns the width of the user's screen, if ``/help`` has to fit on one.
    """

    store: TreeStore
    model: Model
    model_name: str = "none"
    tools: Sequence[Tool[Any] | AgentTool | ToolSource] = ()
    user: Answerer = field(default_factory=Absent)
    limits: TurnLimits = field(default_factory=TurnLimits)
    tool_limits: Limits = UNLIMITED
    listener: Listener = ignore_event
    models: ModelCatalogue | None = None
    clock: Clock = field(default_factory=SystemClock)
    naming: Naming = random_names
    capabilities: Capabilities | None = None
    calls: CallStore | Durability | None = None
    system_prompt: str | None = None
    columns: Callable[[], int] | None = None
