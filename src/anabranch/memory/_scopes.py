"""Scopes: the owners of memories, and the scopes that one caller sees.

Two names are equal only if their texts are. A name that would need cleaning is refused, so that no
two callers get the same name. A level without a name does not exist, with one exception: callers
who are not distinguished share one project without a name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import AfterValidator, StringConstraints, TypeAdapter, ValidationError

from anabranch._text import printable
from anabranch.errors import AnabranchError
from anabranch.messages import Shape


class UnknownMemoryError(AnabranchError):
    """The caller sees no memory with this id."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"There is no memory {memory_id!r}; memory_search returns the ids of those that exist.",
            memory_id=memory_id,
        )


class LevelError(AnabranchError):
    """The caller may not write memories at this level, or the level does not exist."""

    def __init__(self, level: Level | None, writable: Sequence[Level]) -> None:
        levels = ", ".join(writable) or "none"
        where = f"at the level {level!r}" if level else "here"
        super().__init__(
            f"This caller cannot change memories {where}. Levels that it may write: {levels}.",
            level=level,
            writable=list(writable),
        )


Level: TypeAlias = Literal["person", "project", "team", "org"]
"""The audiences of a memory, the nearest first."""

LEVELS: tuple[Level, ...] = get_args(Level)
"""All levels, the nearest first."""

_LONGEST = 200
_DIGEST = "sha256:"

# Characters that Unicode lets displays ignore, and the empty pattern of Braille. Some are useful in a
# text, such as joiners, but a name with one looks like the name without.
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def _exact(name: str) -> str:
    if printable(name).strip() != name or _UNSEEN.search(name):
        raise ValueError(
            "a name begins and ends with a character that can be seen, and has none that cannot"
        )
    return name


Name: TypeAlias = Annotated[str, StringConstraints(max_length=_LONGEST), AfterValidator(_exact)]
_NAME: TypeAdapter[str] = TypeAdapter(Name)


class Scope(Shape):
    """One user, project, team or organisation, by name."""

    level: Level = "project"
    name: Name = ""


class Scopes(Shape):
    """The scopes of a caller: the user, the project, the team and the organisation.

    ``person`` is the caller alone. The application names the others, which callers share.
    """

    person: Name = ""
    project: Name = ""
    team: Name = ""
    org: Name = ""

    def at(self, level: Level) -> Scope:
        """Return the caller's scope at ``level``."""
        return Scope(level=level, name=getattr(self, level))

    def of(self, principal: str) -> Scopes:
        """Return the scopes of a caller who shares these."""
        return self.model_copy(update={"person": _name_of(principal)})

    @property
    def visible(self) -> tuple[Scope, ...]:
        """The scopes whose memories the caller sees, the nearest first."""
        scopes = map(self.at, LEVELS)
        return tuple(each for each in scopes if each.name or self._is_common(each))

    @property
    def voter(self) -> str:
        """The voter on memories: the caller, or all callers who are not distinguished."""
        nearest = self.visible[0]
        return f"{nearest.level}:{nearest.name}"

    def _is_common(self, scope: Scope) -> bool:
        return scope.level == "project" and not self.person


def _name_of(principal: str) -> str:
    """Return a name for a principal of any text; no two principals have the same name."""
    if principal and not principal.startswith(_DIGEST):
        try:
            return _NAME.validate_python(principal)
        except ValidationError:
            pass  # a digest is a name
    return _DIGEST + hashlib.sha256(principal.encode("utf-8", "surrogatepass")).hexdigest()
