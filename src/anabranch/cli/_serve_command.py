"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import logging
import os
from typing import Annotated

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._option_groups import AgentTools, Asking, Persistence
from anabranch.cli._options import CallLimits, Model, SourceTarget


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
    if ask_url is not None and (
        endpoint.transport != "http" or not store or not asking.ask_fallback
    ):
        raise UsageError(
            "--ask-url is for pages over HTTP, which store the users' answers. Give it with"
            " --transport http, --ask-fallback and --store URL."
        )
