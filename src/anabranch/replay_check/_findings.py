"""``Finding``: what a check reports, with its place, its reason and its remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Finding:
    """One place in a tool that is not safe to replay.

    Attributes:
        rule: the name of the rule, in kebab-case.
        file: the source file.
        line: the line, counted from 1.
        column: the column, counted from 1.
        reason: what happens in a replay, in one sentence.
        fix: what to do about it, in one sentence.
        step: the step of the call, if a run has shown it.
        first: what the first run did at this step.
        second: what the replay of the same round did at this step.
    """

    rule: str
    file: str
    line: int
    column: int
    reason: str
    fix: str
    step: str | None = None
    first: str | None = None
    second: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.file}:{self.line}:{self.column}: {self.rule}: {self.reason} {self.fix}"]
        if self.first is not None or self.second is not None:
            lines += [f"  first run: {self.first}", f"  replay:    {self.second}"]
        return "\n".join(lines)

    def to_json(self) -> dict[str, str | int]:
        """Return the fields that are not ``None``."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def seen_from(self, folder: Path) -> Finding:
        """Return the finding with a file name relative to ``folder``, if the file is in it."""
        path = Path(self.file)
        return replace(self, file=str(path.relative_to(folder))) if _within(path, folder) else self


def _within(path: Path, folder: Path) -> bool:
    return path.is_absolute() and path.is_relative_to(folder)
