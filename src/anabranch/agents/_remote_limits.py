"""Limits of one call of another server's tool: what it may send, ask and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.agents._agent_tools import Outcome
from anabranch.errors import ToolError
from anabranch.messages import ResultBlock, TextBlock

BLOCKS: Final = 1_000
"""Texts and images of a result: each is an object of the stored node."""


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """Limits of one call of a tool of another server.

    What is larger is refused, and not cut: the model reads that it was, and may ask for less.

    Attributes:
        max_result: characters of a result; of an image, those of its Base64.
        max_question: characters of what is asked at once, of a person or the model, with the state
            that the server hands out.
        max_questions: questions that wait for the person at once.
        max_samples: requests to the agent's model.
        max_notices: log lines and progress messages; further ones are left out.
    """

    max_result: int = 8 * 1024 * 1024
    max_question: int = 1024 * 1024
    max_questions: int = 100
    max_samples: int = 100
    max_notices: int = 1_000

    def checked(self, tool: str, outcome: Outcome) -> Outcome:
        """Return ``outcome``, or in its place that it is too large."""
        sizes = [_size(block) for block in outcome.blocks]
        if sum(sizes) <= self.max_result and len(sizes) <= BLOCKS:
            return outcome
        return Outcome(
            f"The result of {tool!r} is too large, and is left out: {sum(sizes):,} characters in"
            f" {len(sizes):,} parts; the limits are {self.max_result:,} and {BLOCKS:,}. Call it so"
            " that it returns less.",
            is_error=True,
        )

    def check_question(self, tool: str, size: int, number: int = 1) -> None:
        """Check what a server asks at once.

        Raises:
            ToolError: it is too much.
        """
        if size > self.max_question or number > self.max_questions:
            raise ToolError(
                f"The server of {tool!r} asks too much at once: {size:,} characters, and questions"
                f" in number {number:,}; the limits are {self.max_question:,} and"
                f" {self.max_questions:,}."
            )


def _size(block: ResultBlock) -> int:
    return len(block.text if isinstance(block, TextBlock) else block.data)
