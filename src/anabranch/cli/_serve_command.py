"""``anabranch serve``: the tools of some targets as an MCP server, over stdio or HTTP.

Over HTTP it is one process, or several that share the port (``_processes.py``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import anyio
from cyclopts import Parameter
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.exits import FailedError, UsageError
from anabranch.cli._answering import open_sampler
from anabranch.cli._combined_server import (
    Persistence,
    assemble,
    opens,
    seal_probe,
    seals_with,
    server_options,
    tool_names,
)
from anabranch.cli._keys import KEYS, read_keys
from anabranch.cli._options import MODEL, STORE, Model
from anabranch.cli._processes import listen, run_workers, serve_app
from anabranch.cli._targets import load
from anabranch.errors import StoreError
from anabranch.mcp._options import TTL, completed_by
from anabranch.stores import open_store

__all__ = ["serve_command"]

PORTS = range(2**16)


def serve_command(
    *targets: Annotated[
        str, Parameter(help="A Python file, a module, or module:attribute. Several may be given.")
    ],
    transport: Annotated[
        Literal["stdio", "http"], Parameter(help="Over stdin and stdout, or over HTTP at /mcp.")
    ] = "stdio",
    host: Annotated[str, Parameter(help="The address to listen on, over HTTP.")] = "127.0.0.1",
    port: Annotated[
        int, Parameter(help="The port to listen on, over HTTP; 0 for any free port.")
    ] = 8000,
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
    model: Model = None,
) -> None:
    """Run the command."""
    endpoint = Endpoint(transport, host, port, workers)
    persistence = Persistence(store or None, ttl, continue_calls)
    serve(targets, endpoint, model=model, persistence=persistence)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a server is reached, and by how many processes."""

    transport: Literal["stdio", "http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1


@dataclass(frozen=True, slots=True)
class _ServerRecipe:
    """All it takes to make the server, in a form that can be passed to another process."""

    targets: tuple[str, ...]
    model: str | None
    keys: tuple[str, ...] = field(repr=False)
    persistence: Persistence

    def make_server(self) -> tuple[MCPServer[Any], set[str]]:
        """Return it, and the options that the targets' own servers have set themselves."""
        sampler = open_sampler(self.model)  # a wrong name is reported before any target's code runs
        with completed_by(server_options(self.keys, sampler, self.persistence)) as unused:
            found = load(self.targets)
        server = assemble(found, keys=self.keys, sampler=sampler, persistence=self.persistence)
        return server, unused


@dataclass(frozen=True, slots=True)
class _WorkerApp:
    """Makes the application of one worker, in the worker's process."""

    recipe: _ServerRecipe
    host: str
    probe: str
    """Sealed by the server of the parent process."""

    def __call__(self) -> Starlette:
        log_to_stderr(logging.WARNING)
        server, _ = self.recipe.make_server()
        if not opens(server, self.probe):
            raise UsageError(
                f"{server.name!r} seals its questions with keys of its own, which are others in"
                " each worker: a client's answer would be refused. Give it keys"
                " (request_state_security=), or serve it with one worker."
            )
        # A session of the handshake era lives in one process, and its next request may reach
        # another worker, so no sessions are offered.
        return server.streamable_http_app(host=self.host, stateless_http=True)


def serve(
    targets: Sequence[str], endpoint: Endpoint, *, model: str | None, persistence: Persistence
) -> None:
    """Serve until the client leaves (stdio) or the person stops it.

    Raises:
        CommandError: see the message.
    """
    _check(targets, endpoint, persistence)
    log_to_stderr(logging.WARNING)
    console = Console()
    keys = tuple(read_keys(os.environ, console.say))
    recipe = _ServerRecipe(tuple(targets), model, keys, persistence)
    server, unused = recipe.make_server()
    if not seals_with(server, keys):
        unused.add("keys")
    for line in _not_used(unused):
        console.say(line)
    if persistence.store is not None:
        anyio.run(_require_store, persistence.store)
    tools = ", ".join(tool_names(server)) or "no tools"
    if endpoint.transport == "http":
        _serve_http(server, recipe, endpoint, tools, console)
        return
    if sys.stdin.isatty():
        console.say(f"Serving {tools} over stdio: an MCP client must be at the other end.")
    # The SDK reads stdin in a thread that cannot be interrupted, so Ctrl-C has to kill the
    # process, as some clients do. Most clients end it by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.run("stdio")


_GIVEN_BY = {
    "keys": KEYS,
    "store": f"--store ({STORE})",
    "sampler": f"--model ({MODEL})",
    "ttl": "--ttl",
}


def _not_used(unused: set[str]) -> list[str]:
    """Say which options have no effect, since the target's code has set them itself."""
    if KEYS not in os.environ:  # those in the file are a default
        unused = unused - {"keys"}
    return [
        f"{_GIVEN_BY.get(name, name)} is not used for a server of the target, which has its own"
        f" {name}."
        for name in sorted(unused)
    ]


def _check(targets: Sequence[str], endpoint: Endpoint, persistence: Persistence) -> None:
    if not targets:
        raise UsageError("serve needs a TARGET: a Python file, a module, or module:attribute.")
    if endpoint.port not in PORTS:
        raise UsageError(f"There is no port {endpoint.port}. Choose one from 0 to 65535.")
    if endpoint.workers < 1:
        raise UsageError(f"There cannot be {endpoint.workers} workers. Choose 1 or more.")
    if endpoint.workers > 1 and endpoint.transport == "stdio":
        raise UsageError("Over stdio there is one process. Give --workers with --transport http.")
    if endpoint.workers > 1 and persistence.store == "memory:":
        raise UsageError("Workers cannot share memory. Name a file or a database as the --store.")
    if not persistence.ttl > 0:
        raise UsageError(f"No one can answer in {persistence.ttl:g} s. Give --ttl more seconds.")


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
    server: MCPServer[Any],
    recipe: _ServerRecipe,
    endpoint: Endpoint,
    tools: str,
    console: Console,
) -> None:
    host, port = endpoint.host, endpoint.port
    # Bound here, so that a port in use is reported in one sentence, and port 0 gets a number.
    try:
        listener = listen(host, port)
    except OSError as error:
        raise FailedError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port."
        ) from error
    with listener:
        place = f"[{host}]" if ":" in host else host
        console.say(f"Serving {tools} at http://{place}:{listener.getsockname()[1]}/mcp")
        if endpoint.workers > 1:
            run_workers(_WorkerApp(recipe, host, seal_probe(server)), listener, endpoint.workers)
        else:
            serve_app(server.streamable_http_app(host=host), listener)
