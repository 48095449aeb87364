"""A memory: one lesson from earlier work, whom it is for, and how far it can be relied on.

Texts are validated where they enter: within their lengths, printable, and not blank. So a store may
rely on them: there is no NUL character and no lone surrogate in any.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StringConstraints

from anabranch._printable import printable
from anabranch.messages import Shape

__all__ = [
    "CONTENT",
    "DESCRIPTION",
    "START",
    "TITLE",
    "Draft",
    "Level",
    "Memory",
    "Outcome",
    "Provenance",
    "Scope",
    "Scopes",
]

TITLE, DESCRIPTION, CONTENT = 200, 500, 4_000
"""The longest title, description and content, in characters."""

START = 0.75
"""The confidence of a new memory: above the floor under which none is injected."""

_PRIOR_WEIGHT = 4
"""How many ratings weigh as much as the confidence that a memory began with."""

Level: TypeAlias = Literal["project", "team", "org"]
"""How far a memory is shared, the nearest first."""

Outcome: TypeAlias = Literal["success", "failure"]
"""How the work ended that a memory is distilled from."""


def _clean(value: object) -> object:
    return printable(value).strip() if isinstance(value, str) else value


_Clean = BeforeValidator(_clean, json_schema_input_type=str)
Title: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=TITLE), _Clean]
Description: TypeAlias = Annotated[
    str, StringConstraints(min_length=1, max_length=DESCRIPTION), _Clean
]
Content: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=CONTENT), _Clean]
Name: TypeAlias = Annotated[str, StringConstraints(max_length=200), _Clean]


class Scope(Shape):
    """One project, team or organisation, by its name."""

    level: Level = "project"
    name: Name = ""


class Scopes(Shape):
    """Where a caller is at home: its project, its team and its organisation."""

    project: Name = ""
    team: Name = ""
    org: Name = ""

    def at(self, level: Level) -> Scope:
        """Return the caller's scope at ``level``."""
        return Scope(level=level, name=getattr(self, level))

    @property
    def visible(self) -> tuple[Scope, ...]:
        """The scopes whose memories the caller sees, the nearest first."""
        return self.at("project"), self.at("team"), self.at("org")


class Draft(Shape):
    """What there is to remember: a title, when it is of use, and one to three sentences."""

    title: Title
    description: Description
    content: Content

    @property
    def digest(self) -> str:
        """The same for contents that differ in case and white space only."""
        return hashlib.sha256(" ".join(self.content.casefold().split()).encode()).hexdigest()


class Provenance(Shape):
    """Where a memory comes from: recorded on purpose, or distilled from a finished branch."""

    source: Literal["recorded", "distilled"] = "recorded"
    branch_id: str | None = None
    outcome: Outcome | None = None


class Memory(Draft):
    """A memory as it is stored.

    ``task`` is what was being done when it was learned; search looks at it, too. ``confidence``
    begins at ``prior`` and is moved by ratings: ``helpful`` and ``unhelpful`` count them.
    """

    id: str
    scope: Scope
    task: str = ""
    prior: float = Field(default=START, ge=0, le=1)
    helpful: int = Field(default=0, ge=0)
    unhelpful: int = Field(default=0, ge=0)
    provenance: Provenance = Provenance()
    created_at: float

    @property
    def confidence(self) -> float:
        """How far it can be relied on, between 0 and 1, whatever the order of its ratings."""
        rated = self.helpful + self.unhelpful
        return (self.prior * _PRIOR_WEIGHT + self.helpful) / (_PRIOR_WEIGHT + rated)

    def rated(self, *, helpful: bool) -> Memory:
        """Return it with one more rating."""
        name = "helpful" if helpful else "unhelpful"
        return self.model_copy(update={name: getattr(self, name) + 1})
