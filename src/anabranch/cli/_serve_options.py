"""The options of ``anabranch serve`` for its calls, its questions and its own tools, in groups.

A group of options can be pickled, so that a worker process can receive it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli._options import (
    STORE,
    CodeVersion,
    Foldable,
    Remembering,
    SharedMemory,
)
from anabranch.mcp import GRACE, HEARTBEAT, TTL, SamplerMode


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Persistence:
    """The options for storing and ending calls, which a worker process can receive."""

    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Store of calls, so that effects happen once even if clients repeat requests: "
            "sqlite:///path, postgresql://…, or memory:. Default: no store.",
        ),
    ] = field(default=None, repr=False)
    ttl: Annotated[float, Parameter(help="Seconds that a user has for one round of questions.")] = (
        TTL
    )
    continue_calls: Annotated[
        bool,
        Parameter(
            help="With a store, offer the tool continue_call, which continues calls with more rounds "
            "of questions than clients allow."
        ),
    ] = True
    grace: Annotated[
        float,
        Parameter(help="Seconds for ending and undoing running calls when the server stops."),
    ] = GRACE
    max_running: Annotated[
        int | None,
        Parameter(
            help="Maximum concurrent calls in one process. The server refuses further calls, and "
            "names the time after which the client may retry. Default: no limit."
        ),
    ] = None
    version: CodeVersion = None


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Asking:
    """The options for asking clients, which a worker process can receive."""

    sampler_mode: Annotated[
        SamplerMode,
        Parameter(
            help="own: the --model answers every sample. prefer-client: the --model answers if the "
            "client cannot sample, or refuses."
        ),
    ] = "own"
    ask_fallback: Annotated[
        bool,
        Parameter(
            help="For clients that show no questions, ask their users in the conversation: results "
            "list the questions, and the tool answer_questions takes the answers.",
            negative=(),
        ),
    ] = False
    ask_url: Annotated[
        str | None,
        Parameter(
            help="Address under which users reach this server, such as https://tools.example.org. With"
            " --ask-fallback and --store, over HTTP, results then link to pages with the forms."
        ),
    ] = None
    sagas: Annotated[
        bool, Parameter(help="Offer the methods tools/callSaga and tools/resumeSaga.")
    ] = True
    heartbeat: Annotated[
        float,
        Parameter(
            help="Seconds between progress notifications to a client of MCP up to 2025-11-25 whose "
            "user has an open question, so that the client restarts its timeout. 0 sends none."
        ),
    ] = HEARTBEAT


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class AgentTools:
    """The options for tools of this library that a server offers to agents."""

    folding: Foldable = False
    memory: Remembering = False
    shared_memory: SharedMemory = None
