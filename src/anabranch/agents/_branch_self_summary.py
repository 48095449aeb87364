"""The result of ``branch_self`` as the model reads it: how its branches have ended, and what was made of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._branch_self_input import BranchSelfInput
from anabranch.agents._recombination import Recombined

EXCERPT = 200
"""Characters of each answer in a summary that has a recombined text as well."""


@dataclass(frozen=True, slots=True)
class EndedBranch:
    """A branch with its name, its prompt, and its outcome, ``None`` if it has not ended."""

    name: str
    prompt: str
    outcome: BranchOutcome | None

    @property
    def answer(self) -> str:
        """What it has said, marked as incomplete if it has failed; empty if that is nothing."""
        outcome = self.outcome
        if outcome is None:
            return ""
        partial = outcome.partial.strip()
        return f"(incomplete, as this branch failed) {partial}" if partial else outcome.text

    def report(self, max_length: int | None) -> str:
        """Return how it has ended, with at most ``max_length`` characters of its answer."""
        outcome = self.outcome
        if outcome is None:
            return "Interrupted before it was done."
        if outcome.error is not None:
            partial = _excerpt(outcome.partial.strip(), max_length)
            return f"Failed: {outcome.error}" + (f"\nBefore that: {partial}" if partial else "")
        calls = ", ".join(use.name for use in outcome.end.tool_uses)
        unused = f"(It called {calls}, which was not run: allow_work is false.)" if calls else ""
        text = _excerpt(outcome.text.strip(), max_length)
        return " ".join(filter(None, [text, unused])) or "(It has said nothing.)"


def _excerpt(text: str, max_length: int | None) -> str:
    if max_length is None or len(text) <= max_length:
        return text
    return f"{text[:max_length].rstrip()}…"


def summary(wanted: BranchSelfInput, branches: Sequence[EndedBranch], made: Recombined) -> str:
    done = sum(branch.outcome is not None and branch.outcome.error is None for branch in branches)
    order = "parallel" if wanted.parallel else "sequential"
    mode = "iterative" if wanted.allow_work else "single response"
    max_length = None if wanted.recombine == "none" else EXCERPT
    parts = [f"{done}/{len(branches)} branches completed ({order}, {mode})."]
    parts += [f"{each.name} ({each.prompt}):\n{each.report(max_length)}" for each in branches]
    parts += [made.note, made.text]
    return "\n\n".join(filter(None, parts))
