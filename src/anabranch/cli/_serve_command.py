"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP.

Over HTTP it is one process, or several that share the port (``_processes.py``).
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Literal

import anyio
from cyclopts import Parameter

from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.exits import FailedError, UsageError
from anabranch.cli._answering import open_sampler
from anabranch.cli._combined_server import (
    CLIENTS_ONLY,
    Asking,
    Persistence,
    seal_probe,
    seals_with,
    tool_names,
)
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._engine_option import EngineName
from anabranch.cli._folding import Foldable
from anabranch.cli._forgotten_awaits import name_forgotten_awaits
from anabranch.cli._http_access import SESSION_TTL, Access, checks_tokens
from anabranch.cli._http_connections import Bounds
from anabranch.cli._http_server import serve_app
from anabranch.cli._http_tokens import TOKEN, read_tokens
from anabranch.cli._memory import Remembering, SharedMemory
from anabranch.cli._options import (
    STORE,
    AccessLog,
    CodeVersion,
    LogForm,
    MaxDepth,
    MaxTokens,
    Model,
    Timeout,
    limits_of,
)
from anabranch.cli._output import protocol_on_stdout
from anabranch.cli._processes import run_workers
from anabranch.cli._server_recipe import MadeServer, ServerRecipe, WorkerApp, not_used
from anabranch.cli._stores import CALL_KEY, read_keys
from anabranch.cli._target_options import SourceTarget
from anabranch.cli._targets import identity_of, is_fastmcp
from anabranch.errors import StoreError
from anabranch.mcp._heartbeat import HEARTBEAT
from anabranch.mcp._options import GRACE, TTL, Ask, SamplerMode
from anabranch.stores import open_store

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer


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


def serve(  # noqa: PLR0913 - what the command line gives
    targets: Sequence[str],
    endpoint: Endpoint,
    *,
    model: str | None,
    persistence: Persistence,
    name: str | None = None,
    asking: Asking = CLIENTS_ONLY,
    limits: Limits = UNLIMITED,
    folding: bool = False,
    memory: bool = False,
    shared_memory: str | None = None,
) -> None:
    """Serve until the client leaves (stdio) or the person stops it.

    Raises:
        CommandError: see the message.
    """
    if not targets and not folding and not memory:
        raise UsageError(
            "serve needs a TARGET: a Python file, a module, or module:attribute; or --folding, or"
            " --memory."
        )
    if shared_memory is not None and not memory:
        raise UsageError("--shared-memory names what --memory shares. Give it with --memory.")
    _check(endpoint, persistence)
    if folding and endpoint.workers > 1 and persistence.store is None:
        raise UsageError("Workers share branches in a store only. Give --store URL.")
    console = Console()
    open_sampler(model)  # a wrong name is reported before any target's code runs
    keys = tuple(
        read_keys(os.environ, console.say, audience=name or identity_of(targets) or "agents")
    )
    recipe = ServerRecipe(
        tuple(targets),
        model,
        keys,
        persistence,
        name,
        asking,
        limits,
        folding,
        memory,
        shared_memory,
    )
    made = recipe.make_server()
    server, unused, around, note = made
    if not seals_with(server, keys):
        unused.add("keys")
    if endpoint.access.tokens and checks_tokens(server):
        unused.add("auth")
    for line in [*not_used(unused), *([note] if note else [])]:
        console.say(line)
    if persistence.store is not None:
        anyio.run(_require_store, persistence.store)
    tools = ", ".join(tool_names(server)) or "no tools"
    if endpoint.transport == "http":
        _serve_http(made, recipe, endpoint, tools, console)
        return
    if sys.stdin.isatty():
        console.say(f"Serving {tools} over stdio: an MCP client must be at the other end.")
    # The SDK reads stdin in a thread that cannot be interrupted, so Ctrl-C has to kill the
    # process, once its calls are undone. Most clients end it by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    anyio.run(_serve_stdio, server, around)


async def _serve_stdio(server: AnyServer, around: AbstractAsyncContextManager[object]) -> None:
    async with around:
        with protocol_on_stdout():
            await _run(server)


async def _run(server: AnyServer) -> None:
    try:
        if is_fastmcp(server):
            await server.run_stdio_async(show_banner=False)
        else:
            await server.run_stdio_async()
    except* BrokenPipeError:
        pass  # the client has died; the SDK's server has ended its calls all the same


def _check(endpoint: Endpoint, persistence: Persistence) -> None:
    endpoint.check()
    if endpoint.workers > 1 and persistence.store == "memory:":
        raise UsageError("Workers cannot share memory. Name a file or a database as the --store.")
    if not persistence.ttl > 0:
        raise UsageError(f"No one can answer in {persistence.ttl:g} s. Give --ttl more seconds.")
    if not 0 <= persistence.grace < math.inf:
        raise UsageError(f"A grace of {persistence.grace:g} s is none. Give --grace 0 or more.")


async def _require_store(url: str) -> None:
    """Fail if the store cannot be used, before any client relies on it."""
    store = open_store(url)
    try:
        await store.find("")
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        await store.close()


def _serve_http(
    made: MadeServer,
    recipe: ServerRecipe,
    endpoint: Endpoint,
    tools: str,
    console: Console,
) -> None:
    host = endpoint.host
    bounds = Bounds(
        endpoint.connections, grace=recipe.persistence.grace, access_log=endpoint.access_log
    )
    with endpoint.listen() as listener:
        place = f"[{host}]" if ":" in host else host
        address = f"http://{place}:{listener.getsockname()[1]}/mcp"

        def on_started() -> None:
            console.say(f"Serving {tools} at {address}")

        if endpoint.workers > 1:
            worker = WorkerApp(
                recipe,
                host,
                endpoint.access,
                seal_probe(made.server),
                endpoint.log_format,
                endpoint.share,
            )
            run_workers(worker, listener, endpoint.workers, bounds, on_started=on_started)
        else:
            ttl, share = endpoint.session_ttl, endpoint.share
            app = endpoint.access.app(made.server, host, session_ttl=ttl, share=share)
            serve_app(app, listener, bounds, on_started=on_started, around=made.around)
