"""The commands that serve: ``serve`` (tools), ``web`` (the chat as a page), ``worker`` (its turns)."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._endpoint import Endpoint, is_loopback
from anabranch.cli._option_groups import AgentOptions, AgentTools, Asking, Persistence
from anabranch.cli._options import (
    AccessLog,
    CallLimits,
    ChatTargets,
    LogForm,
    Model,
    SourceTarget,
    at_least,
)

WEB_TOKEN = "ANABRANCH_WEB_TOKEN"  # noqa: S105 - the name of a variable

if TYPE_CHECKING:
    from anabranch.cli._chat_parts import ChatParts


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
    _check_serving(endpoint, persistence, asking)
    recipe = ServerRecipe(targets, model, (), persistence, name, asking, limits.read(), agent_tools)
    serve(recipe, endpoint)


def _check_serving(endpoint: Endpoint, persistence: Persistence, asking: Asking) -> None:
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


def parts_of(targets: tuple[str, ...], agent: AgentOptions) -> ChatParts:
    from anabranch.cli import _chat_parts as chat
    from anabranch.cli._answering import open_sampler

    tools = chat.tools_of(targets, agent.turn)
    if not (targets or agent.turn.header or agent.turn.env):
        tools.append(chat.game())
    without = chat.WithoutModel() if targets else chat.DemoModel()
    model = open_sampler(agent.model, cache=True) or without
    return chat.parts_around(tools, model, agent)


def web_command(  # noqa: PLR0913 - options
    *targets: ChatTargets,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port to listen on; 0 for any free port.")] = 8080,
    allowed_host: Annotated[
        tuple[str, ...],
        Parameter(
            help="Host name under which browsers reach the page, such as a proxy's name. "
            "Repeatable."
        ),
    ] = (),
    calls: Annotated[
        Literal["outline", "values"] | None,
        Parameter(
            help="List the recorded calls of all tools and callers on the page: outline, "
            "without values; or values."
        ),
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            env_var=WEB_TOKEN,
            help="Token that every browser and client must present. The variable is safer: other users"
            " of the machine may see the command line.",
        ),
    ] = None,
    access_log: AccessLog = False,
    log_format: LogForm = "text",
    agent: AgentOptions = AgentOptions(),
    max_backlog: Annotated[
        int | None,
        Parameter(
            validator=at_least(1),
            help="Maximum runs that wait for a worker. The server refuses further messages with a time"
            " to retry. Default: no limit.",
        ),
    ] = None,
) -> None:
    from anabranch._terminal import log_to_stderr
    from anabranch.chat import CONCURRENCY, LOOPBACK, RateLimits, make_chat_app
    from anabranch.cli._http_access import SharedRequests
    from anabranch.cli._http_server import Bounds, serve_app

    log_to_stderr(logging.WARNING, log_format)
    endpoint = Endpoint("http", host, port, [*allowed_host])
    made = _made_token(endpoint, token)
    endpoint.check()
    parts = parts_of(targets, agent)
    with endpoint.listen() as listener:
        address = f"{endpoint.address(listener)}/"
        try:
            app = make_chat_app(
                parts.trees,
                parts.model,
                parts.tools,
                limits=parts.limits,
                tool_limits=parts.tool_limits,
                calls=parts.calls,
                recorded_calls=calls,
                memory=parts.bank if parts.memory else None,
                token=token or made,
                hosts=[*LOOPBACK, *allowed_host],
                rates=None if is_loopback(host) else RateLimits(),
                max_streams=endpoint.user_share,
                engine=parts.engine,
                concurrency=CONCURRENCY if parts.engine is None else None,
                max_backlog=max_backlog,
                code_version=parts.version,
            )
        except ValueError as error:  # a host or a version that is none
            raise UsageError(str(error)) from error
        serve_app(
            SharedRequests(app, endpoint.concurrency),
            listener,
            Bounds(endpoint.concurrency, access_log=access_log),
            on_started=lambda: _report_start(address, token, made),
            around=parts.open(works=parts.engine is None),
        )


def _made_token(endpoint: Endpoint, token: str | None) -> str | None:

    if token is not None and not token.strip():
        raise UsageError(
            "The token is empty. Omit the token, or set a token that is hard to guess."
        )
    if token is not None or is_loopback(endpoint.host):
        return None
    if not sys.stderr.isatty():  # no user sees the new token, and others may read a stored log
        raise UsageError(
            f"Other machines can reach the server at {endpoint.host}. Set a token ({WEB_TOKEN}, or --token)."
        )
    return secrets.token_urlsafe()


def _report_start(address: str, token: str | None, made: str | None) -> None:
    from anabranch._terminal import Console

    console = Console()
    # A token that the user has set is a secret, and is not shown.
    console.say(f"The chat is at {address}" + (f"?token={made}" if made else ""))
    if token:
        console.say("A browser needs its token once: add ?token= and the token to the address.")


def worker_command(
    *targets: ChatTargets,
    concurrency: Annotated[
        int, Parameter(validator=at_least(1), help="Maximum concurrent runs of this worker.")
    ] = 10,
    per_user: Annotated[
        int | None,
        Parameter(
            validator=at_least(1),
            help="Maximum concurrent runs of one user over all workers; give each worker the same "
            "value. Default: no limit, first come, first served.",
        ),
    ] = None,
    grace: Annotated[
        float,
        Parameter(
            validator=at_least(0),
            help="Maximum seconds that a stopping worker takes to complete steps in progress.",
        ),
    ] = 10,
    log_format: LogForm = "text",
    agent: AgentOptions = AgentOptions(),
) -> None:
    import anyio

    from anabranch._terminal import log_to_stderr
    from anabranch.cli._chat_parts import work

    log_to_stderr(logging.WARNING, log_format)
    parts = parts_of(targets, agent)
    if parts.engine is None:
        raise UsageError(
            "A worker needs an engine that it shares with others: give --engine dbos."
            " Without one, each `anabranch web` works on its own runs."
        )
    anyio.run(work, parts, concurrency, per_user, grace)
