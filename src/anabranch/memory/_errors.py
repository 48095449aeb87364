"""The refusals of a memory: what the caller does not see, or may not change."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import AnabranchError
from anabranch.memory._scopes import Level


class UnknownMemoryError(AnabranchError):
    """There is no such memory among those that the caller sees."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"There is no memory {memory_id!r}; memory_search returns the ids of those that exist.",
            memory_id=memory_id,
        )


class LevelError(AnabranchError):
    """The caller may not write memories of this level, or there is no such level."""

    def __init__(self, level: Level | None, writable: Sequence[Level]) -> None:
        levels = ", ".join(writable) or "none"
        where = f"at the level {level!r}" if level else "here"
        super().__init__(
            f"This caller cannot change memories {where}. Levels that it may write: {levels}.",
            level=level,
            writable=list(writable),
        )
