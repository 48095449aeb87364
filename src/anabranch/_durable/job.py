"""One request to run a call: a tool, its arguments, and who is on the other side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from anabranch._asking.host import Host
from anabranch._durable.store import CallStore
from anabranch._engine import Sink
from anabranch._engine.folding import Watch
from anabranch.tool import Tool

RETAIN = 86_400.0


@dataclass(frozen=True, slots=True)
class Durability:
    """How a store is used.

    Attributes:
        store: where calls are stored.
        forks: what happens when a round is answered again, differently: the answer is refused
            (``reject``), or a line of its own begins there (``fork``).
        spill: a state of more bytes, uncompressed, stays in the store, and the client gets a reference to it.
        lease: seconds until the call of a worker that has died can be run by another.
        expire_after: seconds without a request from the client after which a call expires: its
            compensations are run, and it cannot be continued. Of an agent's call, seconds for which
            a question is open: one that is answered in time goes on however late a worker comes.
        retry_undo_after: seconds until compensations that have failed are tried again.
        retain: seconds for which a call that has ended stays in the store, to repeat its replies.
    """

    store: CallStore
    forks: Literal["reject", "fork"] = "reject"
    spill: int = 256 * 1024
    lease: float = 15.0
    expire_after: float = 900.0
    retry_undo_after: float = 30.0
    retain: float = RETAIN


@dataclass(frozen=True, slots=True)
class Job:
    """What one request asks for.

    Attributes:
        tool: what is called.
        arguments: as its ``validate`` has returned them.
        host: what the client, or this server, can answer.
        sink: where notices go.
        principal: who calls, if that is known.
        cuts_effects: says of a recorded round that is cancelled whether its effects are cancelled,
            too, instead of awaited and recorded.
        watch: reports the branches of the call.
        wakes: whether a call that sleeps goes on without its client, and does not expire meanwhile.
        begins_lines: whether a later round begins a line that the store does not have, from its
            state: a conversation has stored that.
        answers_first: whether a round's answers came before the ends of its sleeps, however late
            the round is run: who stored them has decided that.
        max_request: bytes that the client's next request may have, if it carries the state of the call.
        seals_arguments: whether that request carries the arguments in the token of the state.
    """

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    host: Host
    sink: Sink
    principal: str = ""
    cuts_effects: Callable[[], bool] = lambda: False
    watch: Watch | None = None
    wakes: bool = False
    begins_lines: bool = False
    answers_first: bool = False
    max_request: int | None = None
    seals_arguments: bool = False


logger: logging.Logger = logging.getLogger("anabranch.durable")


class RunningCalls:
    """The calls, and rounds of calls, that a server runs just now."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Future[None], asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def track(self) -> Generator[None]:
        """Count the current task among them, within the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A call runs in a task of asyncio.")
        ended: asyncio.Future[None] = task.get_loop().create_future()
        self._tasks[ended] = task
        try:
            yield
        finally:
            del self._tasks[ended]
            ended.set_result(None)

    async def end(self, grace: float) -> None:
        """Cancel those of this loop, and wait until they have run their compensations.

        Args:
            grace: seconds to wait; what takes longer goes on for as long as the process does.
        """
        loop = asyncio.get_running_loop()
        here = {ended: task for ended, task in self._tasks.items() if task.get_loop() is loop}
        if not here:
            return
        logger.warning(
            "the server stops: %d calls are ended and undone within %g s", len(here), grace
        )
        for task in here.values():
            task.cancel()
        _, left = await asyncio.wait(here, timeout=grace)
        if left:
            logger.error("%d calls were not undone within %g s", len(left), grace)
