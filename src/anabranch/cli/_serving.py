"""The tools of targets as an MCP server, over stdio or HTTP: the work of ``anabranch serve``."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from anabranch._terminal import (
    CommandError,
    Console,
    FailedError,
    UsageError,
    failing_as,
    log_to_stderr,
)
from anabranch._text import printable
from anabranch.cli._answering import open_sampler
from anabranch.cli._combined_server import (
    MadeServer,
    ServerRecipe,
    opens,
    seal_probe,
    seals_with,
    tool_names,
)
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._http_access import app_of, checks_tokens
from anabranch.cli._http_server import Bounds, Lifetime, serve_app, serve_workers
from anabranch.cli._options import MODEL, STORE, TOKEN
from anabranch.cli._output import protocol_on_stdout
from anabranch.cli._stores import KEYS, read_keys
from anabranch.cli._targets import identity_of, is_fastmcp
from anabranch.errors import StoreError
from anabranch.stores import open_store

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer


def serve(recipe: ServerRecipe, endpoint: Endpoint) -> None:
    """Serve until the client or the user ends the server; ``recipe`` has no keys yet."""
    targets, wanted, store = recipe.targets, recipe.agent_tools, recipe.persistence.store
    if not targets and not wanted.folding and not wanted.memory:
        raise UsageError(
            "serve needs a TARGET: a Python file, a module, or module:attribute; or --folding, or"
            " --memory."
        )
    if wanted.shared_memory is not None and not wanted.memory:
        raise UsageError("--shared-memory needs --memory. Give both options.")
    if wanted.folding and endpoint.workers > 1 and store is None:
        raise UsageError("Workers share branches in a store only. Give --store URL.")
    console = Console()
    open_sampler(recipe.model)  # a wrong name is reported before any target's code runs
    audience = recipe.name or identity_of(targets) or "agents"
    keys = tuple(read_keys(os.environ, console.say, audience=audience))
    recipe = replace(recipe, keys=keys)
    made = recipe.make_server()
    server, unused, around, note = made
    if not seals_with(server, keys):
        unused.add("keys")
    if endpoint.token and checks_tokens(server):
        unused.add("auth")
    for line in [*not_used(unused), *([note] if note else [])]:
        console.say(line)
    if store:
        anyio.run(_require_store, store)
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
            try:
                if is_fastmcp(server):
                    await server.run_stdio_async(show_banner=False)
                else:
                    await server.run_stdio_async()
            except* BrokenPipeError:
                pass  # the client has died; the SDK's server has ended its calls nevertheless


async def _require_store(url: str) -> None:
    store = open_store(url)
    try:
        with failing_as(FailedError, StoreError):
            await store.find("")
    finally:
        await store.close()


def _serve_http(
    made: MadeServer, recipe: ServerRecipe, endpoint: Endpoint, tools: str, console: Console
) -> None:
    bounds = Bounds(endpoint.concurrency, recipe.persistence.grace, endpoint.access_log)
    with endpoint.listen() as listener:
        address = f"{endpoint.address(listener)}/mcp"

        def on_started() -> None:
            console.say(f"Serving {tools} at {address}")

        if endpoint.workers > 1:
            worker = WorkerApp(recipe, endpoint, seal_probe(made.server))
            on_started()
            serve_workers(worker, listener, endpoint.workers, bounds)
        else:
            app = app_of(made.server, endpoint)
            serve_app(app, listener, bounds, on_started=on_started, around=made.around)


@dataclass(frozen=True, slots=True)
class WorkerApp:
    recipe: ServerRecipe
    endpoint: Endpoint
    probe: str
    """A text that the server of the parent process has sealed."""

    def __call__(self) -> ASGIApp:
        log_to_stderr(logging.WARNING, self.endpoint.log_format)
        try:
            server, _, around, _ = self.recipe.make_server()
            self._check(server)
        except CommandError as error:
            sys.stderr.write(printable(f"anabranch: {error}\n"))
            sys.exit(STARTUP_FAILURE)
        except KeyboardInterrupt:  # Ctrl-C reaches every process of a terminal
            sys.exit()
        # A session of the handshake era lives in one process, and its next request may reach
        # another worker, so no sessions are offered.
        app = app_of(server, replace(self.endpoint, stateless=True))
        return Lifetime(app, self.recipe.persistence.grace, around=_ending_with_parent(around))

    def _check(self, server: AnyServer) -> None:
        if not opens(server, self.probe):
            raise UsageError(
                f"{server.name!r} seals its questions with its own keys, which differ in each"
                " worker: another worker would refuse a client's answer. Give it keys"
                " (request_state_security=), or serve it with one worker."
            )


@asynccontextmanager
async def _ending_with_parent(around: AbstractAsyncContextManager[object]) -> AsyncGenerator[None]:
    """Enter ``around``; stop with the parent process, which frees the port."""

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    async with around:
        yield


# Options that have another name than the setting of a server.
_GIVEN_BY = {
    "keys": KEYS,
    "store": f"--store ({STORE})",
    "sampler": f"--model ({MODEL})",
    "ask": "--ask-fallback",
    "code_version": "--code-version (ANABRANCH_CODE_VERSION)",
    "auth": f"--token ({TOKEN})",
}


def not_used(unused: set[str]) -> list[str]:
    if KEYS not in os.environ:  # keys in the file are a default
        unused = unused - {"keys"}
    return [
        f"{_GIVEN_BY.get(name, '--' + name.replace('_', '-'))} has no effect on a server of the target, which sets its own"
        f" {name}."
        for name in sorted(unused)
    ]
