"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import logging
import math
import os
from typing import Annotated, Literal

from cyclopts import Parameter

from anabranch._terminal.exits import UsageError
from anabranch.cli._options import (
    SESSION_TTL,
    STORE,
    TOKEN,
    AccessLog,
    CodeVersion,
    EngineName,
    Foldable,
    LogForm,
    MaxDepth,
    MaxTokens,
    Model,
    Remembering,
    SharedMemory,
    Timeout,
    limits_of,
)
from anabranch.cli._target_options import SourceTarget
from anabranch.mcp._defaults import GRACE, HEARTBEAT, TTL, Ask, SamplerMode


def serve_command(  # noqa: PLR0913 - the options of the command
    *targets: SourceTarget,
    name: Annotated[
        str | None,
        Parameter(
            help="The server's name, by default that of the target. Servers of other names do not"
            " accept each other's states."
        ),
    ] = None,
    transport: Annotated[
        Literal["stdio", "http"], Parameter(help="Over stdin and stdout, or over HTTP at /mcp.")
    ] = "stdio",
    host: Annotated[str, Parameter(help="The address to listen on, over HTTP.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="The port to listen on, over HTTP; 0 for any free port.")
    ] = 8000,
    allowed_host: Annotated[
        list[str] | None,
        Parameter(
            help="A name by which clients, or a proxy, reach the server over HTTP; * for any. May be"
            " repeated; needed if --host is not this machine alone.",
            negative=(),
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        Parameter(help="The origin of a web page that may send requests.", negative=()),
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            env_var=TOKEN,
            help="The bearer token that requests need, over HTTP, or several separated by commas."
            " Other users may see it among the processes: rather set the variable.",
        ),
    ] = None,
    stateless: Annotated[
        bool,
        Parameter(
            help="Offer no sessions to clients up to 2025-11-25, over HTTP: for replicas behind a"
            " balancer. Tools cannot ask such clients anything then.",
            negative=(),
        ),
    ] = False,
    workers: Annotated[
        int,
        Parameter(
            help="Processes that share the port, over HTTP. With more than one, clients up to"
            " 2025-11-25 have no sessions, so tools cannot ask them anything."
        ),
    ] = 1,
    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Where calls are stored, so that effects happen once whatever clients repeat:"
            " sqlite:///path, postgresql://…, or memory:. Without it, nothing is stored.",
        ),
    ] = None,
    ttl: Annotated[
        float, Parameter(help="Seconds that a person has for one round of questions.")
    ] = TTL,
    continue_calls: Annotated[
        bool,
        Parameter(
            help="With a store, offer the tool continue_call, which continues calls that need more"
            " rounds of questions than clients allow."
        ),
    ] = True,
    sagas: Annotated[
        bool, Parameter(help="Offer the methods tools/callSaga and tools/resumeSaga.")
    ] = True,
    max_connections: Annotated[
        int | None,
        Parameter(
            help="Connections to one process at the same time, over HTTP; by default 512, or half"
            " of the files that it may have open. Further ones are refused."
        ),
    ] = None,
    session_ttl: Annotated[
        float,
        Parameter(
            help="Seconds after which the session of a client up to 2025-11-25 ends that sends no"
            " request, over HTTP."
        ),
    ] = SESSION_TTL,
    max_running: Annotated[
        int | None,
        Parameter(
            help="Calls that one process runs at the same time; a further one is refused, with the time"
            " to come back. By default, none is."
        ),
    ] = None,
    access_log: AccessLog = False,
    log_format: LogForm = "text",
    grace: Annotated[
        float,
        Parameter(
            help="Seconds in which the calls that run when the server is stopped are ended and"
            " undone."
        ),
    ] = GRACE,
    model: Model = None,
    sampler_mode: Annotated[
        SamplerMode,
        Parameter(
            help="own: the --model answers every sample. prefer-client: only where the client cannot"
            " sample, or refuses."
        ),
    ] = "own",
    ask_fallback: Annotated[
        bool,
        Parameter(
            help="Reach the users of clients that show no questions, too: by results that list them"
            " and a tool answer_questions.",
            negative=(),
        ),
    ] = False,
    ask_url: Annotated[
        str | None,
        Parameter(
            help="With --ask-fallback and --store, over HTTP: where users reach this server, such as"
            " https://tools.example.org. Such results then have links to pages with the forms."
        ),
    ] = None,
    heartbeat: Annotated[
        float,
        Parameter(
            help="Seconds between two progress notifications while a client up to 2025-11-25 is"
            " asked, so that its timeout can begin again; 0 for none."
        ),
    ] = HEARTBEAT,
    max_tokens: MaxTokens = None,
    max_depth: MaxDepth = None,
    timeout: Timeout = None,
    folding: Foldable = False,
    memory: Remembering = False,
    shared_memory: SharedMemory = None,
    engine: EngineName = None,
    version: CodeVersion = None,
) -> None:
    """Run the command."""
    from anabranch._terminal.logs import log_to_stderr
    from anabranch.cli._combined_server import Asking, Persistence
    from anabranch.cli._endpoint import Endpoint
    from anabranch.cli._forgotten_awaits import name_forgotten_awaits
    from anabranch.cli._http_access import Access
    from anabranch.cli._serving import serve
    from anabranch.cli._stores import CALL_KEY
    from anabranch.cli._tokens import read_tokens

    log_to_stderr(logging.WARNING, log_format)
    if CALL_KEY in os.environ:
        name_forgotten_awaits()
    limits = limits_of(max_tokens, max_depth, timeout)
    if transport == "stdio" and token != os.environ.get(TOKEN):
        raise UsageError("Over stdio no one else can call. Give --token with --transport http.")
    access = Access(tuple(allowed_host or ()), tuple(allowed_origin or ()), read_tokens(token))
    lasting = None if stateless else session_ttl
    endpoint = Endpoint(
        transport, host, port, workers, access, lasting, max_connections, access_log, log_format
    )
    persistence = Persistence(
        store or None, ttl, continue_calls, grace, engine, max_running, version or None
    )
    if max_running is not None and max_running < 1:
        raise UsageError(f"--max-running must be at least 1, not {max_running}.")
    if not 0 <= heartbeat < math.inf:
        raise UsageError(f"--heartbeat is a number of seconds, or 0 for none, not {heartbeat:g}.")
    ask: Ask = "fallback" if ask_fallback else "client"
    asking = Asking(sampler_mode, ask, ask_url, sagas, heartbeat or None)
    if ask_url is not None and (transport != "http" or not store or not ask_fallback):
        raise UsageError(
            "--ask-url is for pages over HTTP, which store what users enter there. Give it with"
            " --transport http, --ask-fallback and --store URL."
        )
    serve(
        targets,
        endpoint,
        model=model,
        persistence=persistence,
        name=name,
        asking=asking,
        limits=limits,
        folding=folding,
        memory=memory,
        shared_memory=shared_memory,
    )
