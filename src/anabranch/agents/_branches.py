"""Branches growing from their prompts, side by side or one after the other.

Owns what happens to one of them and to all: they share the limits of the turn that opened them and
nothing else. What goes wrong in one is recorded there, in words that a model and a person can read,
and harms no other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from pydantic import JsonValue

from anabranch._engine import run_shielded
from anabranch._engine.clock import Clock
from anabranch.agents._gather_structured import together
from anabranch.agents._turn import Told, Turn
from anabranch.errors import AnabranchError, BranchTimeoutError, StoreError
from anabranch.models import ModelError
from anabranch.tree import Node

__all__ = ["Grown", "grow"]

logger: logging.Logger = logging.getLogger("anabranch.agents")


@dataclass(frozen=True, slots=True)
class Grown:
    """A branch that has come to its end.

    Attributes:
        start: the node of its prompt.
        end: its last node; where it has failed, the one that says so.
        error: why it has failed, ``None`` if it has not.
    """

    start: Node
    end: Node
    error: str | None = None

    @property
    def text(self) -> str:
        """What it has answered; nothing if it has failed."""
        return "" if self.error is not None else self.end.text


async def grow(
    turn: Turn,
    starts: Iterable[tuple[Node, Told | None]],
    ends: dict[str, Grown],
    *,
    work: bool,
    parallel: bool,
    meanwhile: Sequence[Callable[[], Awaitable[None]]] = (),
) -> None:
    """Let the model answer at each of ``starts``, which are in the store.

    ``ends`` gets each branch, by the id of its start, as soon as it has come to its end; so an
    interruption finds there what is done.

    Args:
        turn: whose limits hold.
        starts: the prompts, each with what the model is told there, if that is known.
        ends: filled.
        work: go on until no more tools are called, instead of replying once.
        parallel: all at once.
        meanwhile: done while the first model is waited for.
    """

    async def in_turn() -> None:
        for job in jobs:
            await job()

    jobs = [partial(_grow, turn.beside(), *start, ends, work=work) for start in starts]
    await together([*(jobs if parallel else [in_turn]), *meanwhile])


async def _grow(
    turn: Turn, start: Node, told: Told | None, ends: dict[str, Grown], *, work: bool
) -> None:
    growing = turn.run(start, told) if work else turn.reply(start, told)
    seconds = turn.agent.limits.branch_timeout
    try:
        end = await (
            growing if seconds is None else _within(turn.agent.clock, seconds, start, growing)
        )
    except Exception as error:  # noqa: BLE001 - unexpected ones are logged where they are told
        # Models and listeners may raise anything, and what leaves a branch ends all beside it.
        ends[start.id] = await run_shielded(_record(turn, start, error))
    else:
        ends[start.id] = Grown(start, end)


async def _within(clock: Clock, seconds: float, start: Node, work: Awaitable[Node]) -> Node:
    with anyio.CancelScope() as scope:
        timer = clock.call_at(clock.now() + seconds, scope.cancel)
        try:
            return await work
        finally:
            timer.cancel()
    raise BranchTimeoutError(start.id, seconds)


async def _record(turn: Turn, start: Node, error: Exception) -> Grown:
    """Say on the branch that it has failed."""
    told = _told(error)
    after = turn.tip or start
    data: dict[str, JsonValue] = {"stop_reason": "error", "error": told}
    text = f"(this branch has failed): {told}"
    node = turn.agent.node(start.thread_id, after.id, "assistant", text, data=data)
    try:
        return Grown(start, await turn.add(node), told)
    except Exception:
        # The store is what has failed, or a listener: the others must not pay for it, and the
        # summary tells of it in any case.
        logger.exception("the failure of the branch at %r could not be recorded", start.id)
        return Grown(start, after, told)


def _told(error: Exception) -> str:
    """Return what may be told of ``error``; one that nobody expected is masked, and logged."""
    if isinstance(error, AnabranchError | ModelError | StoreError):
        return str(error)
    logger.error("a branch has failed", exc_info=error)
    return f"An unexpected error ({type(error).__name__}); the log has the details."
