"""``anabranch web`` and ``anabranch worker``: the chat as a page, and the workers of its turns."""

from __future__ import annotations

import logging
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from anabranch._terminal import UsageError
from anabranch.cli._option_groups import AgentOptions
from anabranch.cli._options import AccessLog, ChatTargets, LogForm, at_least

WEB_TOKEN = "ANABRANCH_WEB_TOKEN"  # noqa: S105 - the name of a variable

if TYPE_CHECKING:
    from anabranch.cli._chat_parts import ChatParts
    from anabranch.cli._endpoint import Endpoint


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
    from anabranch.agents import TurnLimits
    from anabranch.chat import CONCURRENCY, LOOPBACK, RateLimits, make_chat_app
    from anabranch.cli._endpoint import Endpoint, is_loopback
    from anabranch.cli._http_access import SharedRequests
    from anabranch.cli._http_server import Bounds, serve_app
    from anabranch.cli._options import of_tools

    log_to_stderr(logging.WARNING, log_format)
    endpoint = Endpoint("http", host, port, [*allowed_host])
    made = _made_token(endpoint, token)
    endpoint.check()
    limits, parts = agent.turn.limits(), parts_of(targets, agent)
    with endpoint.listen() as listener:
        address = f"{endpoint.address(listener)}/"
        try:
            app = make_chat_app(
                parts.trees,
                parts.model,
                parts.tools,
                limits=TurnLimits.of(limits),
                tool_limits=of_tools(limits),
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
    from anabranch.cli._endpoint import is_loopback

    if token is not None and not token.strip():
        raise UsageError("The token is empty. Leave it out, or set one that is hard to guess.")
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
    from anabranch.cli._working import work

    log_to_stderr(logging.WARNING, log_format)
    limits, parts = agent.turn.limits(), parts_of(targets, agent)
    if parts.engine is None:
        raise UsageError(
            "A worker needs an engine that it shares with others: give --engine dbos."
            " Without one, each `anabranch web` works on its own runs."
        )
    anyio.run(work, parts, limits, concurrency, per_user, grace)
