"""``anabranch worker``: takes the runs of chats to their ends, beside the processes that show them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import anyio
from cyclopts import Parameter

from anabranch._budget import Limits
from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import woken_by_signals
from anabranch.agents import TurnLimits
from anabranch.agents._turn_limits import of_tools
from anabranch.cli._chat_parts import ChatParts, open_parts
from anabranch.cli._chat_tools import ChatTargets, ChosenTools, ServerHeaders, WithoutTools
from anabranch.cli._engine_option import EngineName
from anabranch.cli._folding import Foldable
from anabranch.cli._memory import Remembering
from anabranch.cli._options import (
    CodeVersion,
    LogForm,
    Model,
    Store,
    TurnMaxDepth,
    TurnMaxTokens,
    TurnTimeout,
    Variables,
    turn_limits_of,
)
from anabranch.errors import StoreError, needs_extra


def worker_command(  # noqa: PLR0913 - options
    *targets: ChatTargets,
    store: Store = None,
    engine: EngineName = None,
    model: Model = None,
    concurrency: Annotated[
        int, Parameter(help="The number of runs that it works on at the same time.")
    ] = 10,
    per_person: Annotated[
        int | None,
        Parameter(
            help="The number of one person's runs on which all workers work at the same time; give it"
            " to each of them. Without it, runs are taken in the order in which they came."
        ),
    ] = None,
    grace: Annotated[
        float, Parameter(help="Seconds that it has to end: effects that have begun are completed.")
    ] = 10,
    max_tokens: TurnMaxTokens = None,
    max_depth: TurnMaxDepth = None,
    timeout: TurnTimeout = None,
    header: ServerHeaders = None,
    env: Variables = None,
    tools: ChosenTools = None,
    without: WithoutTools = None,
    folding: Foldable = False,
    memory: Remembering = False,
    log_format: LogForm = "text",
    version: CodeVersion = None,
) -> None:
    """Run the command."""
    log_to_stderr(logging.WARNING, log_format)
    if concurrency < 1:
        raise UsageError(f"--concurrency must be at least 1, not {concurrency}.")
    if per_person is not None and per_person < 1:
        raise UsageError(f"--per-person must be at least 1, not {per_person}.")
    if not 0 <= grace < threading.TIMEOUT_MAX:
        raise UsageError(f"--grace is a number of seconds, 0 or more, not {grace:g}.")
    limits = turn_limits_of(max_tokens, max_depth, timeout)
    parts = open_parts(
        targets,
        header=header,
        env=env,
        choice=(tools or (), without or ()),
        model=model,
        store=store,
        engine=engine,
        folding=folding,
        memory=memory,
        version=version,
    )
    if parts.engine is None:
        raise UsageError(
            "A worker needs an engine that it shares with others: give --engine dbos."
            " Without one, each `anabranch web` works on its own runs."
        )
    anyio.run(_work, parts, limits, concurrency, per_person, grace)


async def _work(
    parts: ChatParts, limits: Limits, concurrency: int, per_person: int | None, grace: float
) -> None:
    """Work until the process is asked to end."""
    with needs_extra("chat", "A worker", UsageError):
        from anabranch.chat._web.conversations import Conversations  # noqa: PLC0415 - an extra
    conversations = Conversations(
        parts.trees,
        parts.model,
        parts.tools,
        limits=TurnLimits.of(limits),
        tool_limits=of_tools(limits),
        calls=parts.calls,
        engine=parts.engine,
        code_version=parts.version,
    )
    try:
        async with parts.open():
            if parts.engine is not None:
                await parts.engine.backlog()  # it can be reached
            with _until_signal() as ended:
                async with conversations.running(concurrency, per_person):
                    Console().say(f"The worker takes runs, {concurrency} at a time.")
                    await ended.wait()
                    _end_within(grace)
    except StoreError as error:
        raise FailedError(str(error)) from error


@contextmanager
def _until_signal() -> Generator[asyncio.Event]:
    """Yield what is set on Ctrl-C or SIGTERM."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(ended.set)

    with woken_by_signals(loop):
        before = {each: signal.signal(each, end) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield ended
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _end_within(seconds: float) -> None:
    """End the process after so many seconds, whatever holds it up: threads cannot be cancelled."""

    def cut_off() -> None:
        Console().say(f"Not everything has ended within {seconds:g} s; it goes on elsewhere.")
        os._exit(FailedError.status)

    bound = threading.Timer(seconds, cut_off)
    bound.daemon = True
    bound.start()
