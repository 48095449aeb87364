"""Executes the runs of chats that wait for a worker: the work of ``anabranch worker``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from anabranch._budget import Limits
from anabranch._terminal import Console, FailedError, failing_as, handled_by, woken_by_signals
from anabranch.agents import TurnLimits
from anabranch.cli._chat_parts import ChatParts
from anabranch.cli._options import of_tools
from anabranch.cli._output import cut_off_after
from anabranch.errors import StoreError


async def work(
    parts: ChatParts, limits: Limits, concurrency: int, per_user: int | None, grace: float
) -> None:
    from anabranch.chat import Conversations

    conversations = Conversations(
        parts.trees,
        parts.model,
        parts.tools,
        limits=TurnLimits.of(limits),
        tool_limits=of_tools(limits),
        calls=parts.calls,
        engine=parts.engine,
        per_principal=per_user,
        code_version=parts.version,
    )
    with failing_as(FailedError, StoreError):
        async with parts.open():
            if parts.engine is not None:
                await parts.engine.backlog()  # fails if the engine is unreachable
            with _until_signal() as ended:
                async with conversations.running(concurrency):
                    Console().say(f"The worker takes runs, {concurrency} at a time.")
                    await ended.wait()
                    why = f"Not everything has ended within {grace:g} s;"
                    cut_off_after(grace, f"{why} another worker continues the rest.")


@contextmanager
def _until_signal() -> Generator[asyncio.Event]:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(ended.set)

    with woken_by_signals(loop), handled_by(end, (signal.SIGINT, signal.SIGTERM)):
        yield ended
