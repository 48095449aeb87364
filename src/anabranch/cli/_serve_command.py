"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP."""

from __future__ import annotations

import logging
import math
import os
from typing import Annotated, Literal

from cyclopts import Parameter

from anabranch._terminal import UsageError
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
from anabranch.mcp import GRACE, HEARTBEAT, TTL, Ask, SamplerMode


def serve_command(  # noqa: PLR0913 - the options of the command
    *targets: SourceTarget,
    name: Annotated[
        str | None,
        Parameter(
            help="Name of the server. Default: the name of the target. A server accepts only states of"
            " servers with its name."
        ),
    ] = None,
    transport: Annotated[
        Literal["stdio", "http"], Parameter(help="Transport: stdin and stdout, or HTTP at /mcp.")
    ] = "stdio",
    host: Annotated[str, Parameter(help="Address to listen on over HTTP.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="Port to listen on over HTTP; 0 for any free port.")
    ] = 8000,
    allowed_host: Annotated[
        list[str] | None,
        Parameter(
            help="Host name under which clients or a proxy reach the server over HTTP; * for any. "
            "Repeatable. Required if --host is not the local machine.",
            negative=(),
        ),
    ] = None,
    allowed_origin: Annotated[
        list[str] | None,
        Parameter(help="Origin of a web page that may send requests. Repeatable.", negative=()),
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            env_var=TOKEN,
            help="Bearer token that requests need over HTTP, or several, separated by commas. The "
            "variable is safer: other users of the machine may see the command line.",
        ),
    ] = None,
    stateless: Annotated[
        bool,
        Parameter(
            help="Offer no sessions to clients up to 2025-11-25 over HTTP, for replicas behind a "
            "balancer. Tools cannot ask such clients.",
            negative=(),
        ),
    ] = False,
    workers: Annotated[
        int,
        Parameter(
            help="Processes that share the port over HTTP. With more than one, clients up to "
            "2025-11-25 have no sessions, and tools cannot ask them."
        ),
    ] = 1,
    store: Annotated[
        str | None,
        Parameter(
            env_var=STORE,
            help="Store of calls, so that effects happen once even if clients repeat requests: "
            "sqlite:///path, postgresql://…, or memory:. Default: no store.",
        ),
    ] = None,
    ttl: Annotated[
        float, Parameter(help="Seconds that a user has for one round of questions.")
    ] = TTL,
    continue_calls: Annotated[
        bool,
        Parameter(
            help="With a store, offer the tool continue_call, which continues calls with more rounds "
            "of questions than clients allow."
        ),
    ] = True,
    sagas: Annotated[
        bool, Parameter(help="Offer the methods tools/callSaga and tools/resumeSaga.")
    ] = True,
    limit_concurrency: Annotated[
        int | None,
        Parameter(
            help="Maximum concurrent requests of one process over HTTP. Default: 512, or half of "
            "the files that the process may have open. The server refuses further requests."
        ),
    ] = None,
    session_ttl: Annotated[
        float,
        Parameter(
            help="Seconds without a request after which the session of a client up to 2025-11-25 ends,"
            " over HTTP."
        ),
    ] = SESSION_TTL,
    max_running: Annotated[
        int | None,
        Parameter(
            help="Maximum concurrent calls in one process. The server refuses further calls with a "
            "time to retry. Default: no limit."
        ),
    ] = None,
    access_log: AccessLog = False,
    log_format: LogForm = "text",
    grace: Annotated[
        float,
        Parameter(help="Seconds for ending and undoing running calls when the server stops."),
    ] = GRACE,
    model: Model = None,
    sampler_mode: Annotated[
        SamplerMode,
        Parameter(
            help="own: the --model answers every sample. prefer-client: the --model answers if the "
            "client cannot sample, or refuses."
        ),
    ] = "own",
    ask_fallback: Annotated[
        bool,
        Parameter(
            help="Ask the users of clients that show no questions in the conversation: results list "
            "the questions, and the tool answer_questions takes the answers.",
            negative=(),
        ),
    ] = False,
    ask_url: Annotated[
        str | None,
        Parameter(
            help="Address under which users reach this server, such as https://tools.example.org. With"
            " --ask-fallback and --store, over HTTP, results then link to pages with the forms."
        ),
    ] = None,
    heartbeat: Annotated[
        float,
        Parameter(
            help="Seconds between progress notifications while a client up to 2025-11-25 waits for its"
            " user, so that the client can restart its timeout. 0 sends none."
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
    from anabranch._terminal import log_to_stderr
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
        transport, host, port, workers, access, lasting, limit_concurrency, access_log, log_format
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
