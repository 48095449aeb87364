"""The settings of a session, and the models that a session can switch to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch._asking import describe
from anabranch.agents import Model, TurnLimits
from anabranch.chat._terminal.session_output import SessionError


class SessionSettings(BaseModel):
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
        return cls(**{name: getattr(limits, name) for name in cls._limit_names()})

    def limits(self, base: TurnLimits) -> TurnLimits:
        return replace(base, **{name: getattr(self, name) for name in self._limit_names()})

    def change(self, name: str, text: str) -> None:
        if name not in type(self).model_fields:
            known = ", ".join(type(self).model_fields)
            raise SessionError(f"There is no setting {name!r}. Settings: {known}.")
        try:
            setattr(self, name, None if text.lower() == "none" else text)
        except ValidationError as error:
            raise SessionError(f"{describe(error)}.") from None

    def listing(self) -> str:
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
    def open(self, name: str) -> Model:
        """Return the model ``name``; raise ``ModelError`` if the model cannot be opened."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of known models; others may work as well."""
        ...
