"""The errors of the call machine itself: a tool that cannot be replayed, suspended or run here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch._recordable_error import AnabranchError

__all__ = [
    "NoProgressError",
    "NonDeterminismError",
    "SerializationError",
    "SuspensionError",
    "UnsupportedRuntimeError",
]


@dataclass(eq=False, repr=False)
class SerializationError(AnabranchError):
    """The value of ``step_id`` is of a type that cannot be carried to another round."""

    step_id: str
    type_name: str
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"The value of {self.step_id!r} is of type {self.type_name}, which cannot be written to"
            f" the journal{': ' + self.reason if self.reason else ''}. Return plain JSON or a"
            " pydantic model, annotate the function's return type, and keep connections and files"
            " inside the step."
        )


@dataclass(eq=False, repr=False)
class NonDeterminismError(AnabranchError):
    """A replay did something else than the recorded run.

    ``expected`` and ``found`` name what was recorded at ``step_id`` and what the body did there.
    The call has ended; no effect was run after the difference was found.
    """

    step_id: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"Replay differs at {self.step_id!r}: recorded {self.expected}, now {self.found}. Take"
            " time, randomness and I/O from ctx (ctx.now, ctx.uuid, ctx.random, ctx.step); if the"
            " tool was changed while this call was open, call it again."
        )


@dataclass(eq=False, repr=False)
class SuspensionError(AnabranchError):
    """The body swallowed the cancellation that ends its round, and went on."""

    step_ids: Sequence[str]
    found: str

    def __str__(self) -> str:
        return (
            f"The tool could not be suspended at {_quoted(self.step_ids)}: {self.found}. Do not"
            " catch BaseException or asyncio.CancelledError around an ask without raising it again."
        )


@dataclass(eq=False, repr=False)
class NoProgressError(AnabranchError):
    """``rounds`` rounds in a row were cut off at ``place`` and brought nothing new.

    ``step_ids`` are the questions that were open meanwhile.
    """

    step_ids: Sequence[str]
    place: str
    rounds: int

    def __str__(self) -> str:
        return (
            f"The tool makes no progress: {self.rounds} rounds in a row were cut off at"
            f" {self.place}, while {_quoted(self.step_ids)} was open. Run this work in ctx.step,"
            " which is never cut off, or raise patience=."
        )


def _quoted(step_ids: Sequence[str]) -> str:
    return ", ".join(map(repr, step_ids))


@dataclass(eq=False, repr=False)
class UnsupportedRuntimeError(AnabranchError, RuntimeError):
    """Calls cannot run here: what a task waits for cannot be read, or is misread.

    ``runtime`` names the versions of Python, of the event loop and of anyio; ``problems`` says
    what was found.
    """

    runtime: str
    problems: Sequence[str]

    def __str__(self) -> str:
        return (
            f"A call cannot run on {self.runtime}: {'; '.join(self.problems)}. Run it in a task of"
            " asyncio or uvloop, with versions that anabranch supports."
        )
