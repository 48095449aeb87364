"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP.

The options for calls, questions and our own tools are groups, which worker processes can unpickle.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, field
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._options import (
    STORE,
    CallLimits,
    CodeVersion,
    Foldable,
    Model,
    Remembering,
    SourceTarget,
)
from anabranch.mcp import GRACE, HEARTBEAT, TTL, SamplerMode


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Persistence:
    """The options for storing and ending calls."""

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
    """The options for asking clients."""

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
    shared_memory: Annotated[
        str | None,
        Parameter(
            help="Name of a project, for --memory: all callers read its notes, and add notes with "
            'scope="project". Default: callers with different tokens share no notes.',
        ),
    ] = None


def serve_command(
    *targets: SourceTarget,
    name: Annotated[
        str | None,
        Parameter(
            help="Name of the server. Default: the name of the target. A client can continue a "
            "call after a restart, or at another process, only if the name is the same."
        ),
    ] = None,
    endpoint: Endpoint = Endpoint(),
    persistence: Persistence = Persistence(),
    model: Model = None,
    asking: Asking = Asking(),
    limits: CallLimits = CallLimits(),
    agent_tools: AgentTools = AgentTools(),
) -> None:
    from anabranch._terminal import log_to_stderr
    from anabranch.cli._combined_server import ServerRecipe
    from anabranch.cli._serving import serve
    from anabranch.cli._stores import CALL_KEY

    log_to_stderr(logging.WARNING, endpoint.log_format)
    if CALL_KEY in os.environ:
        from anabranch.cli._output import name_forgotten_awaits

        name_forgotten_awaits()
    _check(endpoint, persistence, asking)
    recipe = ServerRecipe(targets, model, (), persistence, name, asking, limits.read(), agent_tools)
    serve(recipe, endpoint)


def _check(endpoint: Endpoint, persistence: Persistence, asking: Asking) -> None:
    endpoint.check()
    store, ask_url = persistence.store, asking.ask_url
    if endpoint.workers > 1 and store == "memory:":
        raise UsageError(
            "Several workers cannot share a store in memory. Give a SQLite file or a Postgres"
            " database as the --store."
        )
    if not persistence.ttl > 0:
        raise UsageError(f"No user can answer in {persistence.ttl:g} s. Give --ttl more seconds.")
    if not 0 <= persistence.grace < math.inf:
        raise UsageError(f"--grace must be 0 or more seconds, not {persistence.grace:g}.")
    most = persistence.max_running
    if most is not None and most < 1:
        raise UsageError(f"--max-running must be at least 1, not {most}.")
    if not 0 <= asking.heartbeat < math.inf:
        raise UsageError(
            f"--heartbeat is a number of seconds, or 0 for none, not {asking.heartbeat:g}."
        )
    if ask_url is not None and (
        endpoint.transport != "http" or not store or not asking.ask_fallback
    ):
        raise UsageError(
            "--ask-url is for pages over HTTP, which store the users' answers. Give it with"
            " --transport http, --ask-fallback and --store URL."
        )
