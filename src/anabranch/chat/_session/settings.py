"""What a person can set in a session.

Owns names, types and bounds. Where a setting acts is where it is read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch.agents._turn_limits import TurnLimits
from anabranch.chat._session.output import SessionError
from anabranch.elicitation import describe

__all__ = ["Settings"]


class Settings(BaseModel):
    """The settings of one session, and what they mean."""

    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True, extra="forbid")

    verbose: bool = Field(default=True, description="show what tools and branches do")
    width: int = Field(60, ge=10, le=1_000, description="characters of a message in /tree")
    auto_prompt: str = Field("ok", min_length=1, description="what /auto says to a model")
    iterations: int = Field(50, ge=1, description="requests to the model in a turn")
    tokens: int | None = Field(None, ge=1, description="tokens of a turn; none for any number")
    max_tokens: int = Field(8_192, ge=1, description="tokens of one answer")
    depth: int = Field(4, ge=0, description="how deep branches may open branches")
    branches: int = Field(50, ge=1, description="how many branches branch_self may open")
    at_once: int = Field(100, ge=1, description="requests to the model at the same time")

    @classmethod
    def of(cls, limits: TurnLimits) -> Settings:
        """Return settings that begin with these limits."""
        shared = set(cls.model_fields) & set(TurnLimits.__dataclass_fields__)
        return cls(**{name: getattr(limits, name) for name in shared})

    def limits(self, base: TurnLimits) -> TurnLimits:
        """Return ``base`` with what is set here."""
        shared = set(type(self).model_fields) & set(TurnLimits.__dataclass_fields__)
        return replace(base, **{name: getattr(self, name) for name in shared})

    def change(self, name: str, text: str) -> None:
        """Set what is called ``name`` to what was typed.

        Raises:
            SessionError: there is no such setting, or it does not take that.
        """
        if name not in type(self).model_fields:
            known = ", ".join(type(self).model_fields)
            raise SessionError(f"There is no setting {name!r}. Settings: {known}.")
        try:
            setattr(self, name, None if text.lower() == "none" else text)
        except ValidationError as error:
            raise SessionError(f"{describe(error)}.") from None

    def told(self) -> str:
        """Return all settings, one in each line."""
        fields = type(self).model_fields
        width = max(map(len, fields))
        return "\n".join(
            f"{name:{width}} = {_shown(getattr(self, name))}  ({field.description})"
            for name, field in fields.items()
        )


def _shown(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
