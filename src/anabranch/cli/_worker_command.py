"""``anabranch worker``: runs the turns of chats in a process that shows no page."""

from __future__ import annotations

import logging
import threading
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._options import (
    ChosenTools,
    CodeVersion,
    EngineName,
    Foldable,
    LogForm,
    Model,
    Remembering,
    ServerHeaders,
    Store,
    TurnMaxDepth,
    TurnMaxTokens,
    TurnTimeout,
    Variables,
    WithoutTools,
    turn_limits_of,
)
from anabranch.cli._target_options import ChatTargets


def worker_command(  # noqa: PLR0913 - options
    *targets: ChatTargets,
    store: Store = None,
    engine: EngineName = None,
    model: Model = None,
    concurrency: Annotated[int, Parameter(help="Maximum concurrent runs of this worker.")] = 10,
    per_person: Annotated[
        int | None,
        Parameter(
            help="Maximum concurrent runs of one user over all workers; give each worker the same "
            "value. Default: no limit, first come, first served."
        ),
    ] = None,
    grace: Annotated[
        float, Parameter(help="Seconds for completing effects in progress when the worker stops.")
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
    import anyio

    from anabranch._terminal import log_to_stderr
    from anabranch.cli._chat_parts import open_parts
    from anabranch.cli._working import work

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
    anyio.run(work, parts, limits, concurrency, per_person, grace)
