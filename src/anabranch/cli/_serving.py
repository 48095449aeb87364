"""The tools of some targets as an MCP server, over stdio or HTTP: the work of ``anabranch serve``.

Over HTTP it is one process, or several that share the port.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio

from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal import Console, FailedError, UsageError
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
from anabranch.cli._http_access import checks_tokens
from anabranch.cli._http_server import Bounds, serve_app, serve_workers
from anabranch.cli._output import protocol_on_stdout
from anabranch.cli._server_recipe import MadeServer, ServerRecipe, WorkerApp, not_used
from anabranch.cli._stores import read_keys
from anabranch.cli._targets import identity_of, is_fastmcp
from anabranch.errors import StoreError
from anabranch.stores import open_store

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer


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
        CommandError: if a target or an option is wrong; the message names the fault.
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
    host, concurrency, share = endpoint.host, endpoint.concurrency, endpoint.share
    bounds = Bounds(concurrency, recipe.persistence.grace, endpoint.access_log)
    with endpoint.listen() as listener:
        place = f"[{host}]" if ":" in host else host
        address = f"http://{place}:{listener.getsockname()[1]}/mcp"

        def on_started() -> None:
            console.say(f"Serving {tools} at {address}")

        if endpoint.workers > 1:
            probe = seal_probe(made.server)
            worker = WorkerApp(
                recipe, host, endpoint.access, probe, endpoint.log_format, concurrency, share
            )
            on_started()
            serve_workers(worker, listener, endpoint.workers, bounds)
        else:
            app = endpoint.access.app(
                made.server,
                host,
                session_ttl=endpoint.session_ttl,
                concurrency=concurrency,
                share=share,
            )
            serve_app(app, listener, bounds, on_started=on_started, around=made.around)
