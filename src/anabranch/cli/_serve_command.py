"""``anabranch serve``: the tools of some targets as an MCP server.

Owns the ways of running: over stdin and stdout, or over HTTP at ``/mcp``, in this process or in
several (``workers.py``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import anyio
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette

from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.exits import FailedError, UsageError
from anabranch.cli._call_command import open_sampler
from anabranch.cli._combined_server import Keeping, assemble, tool_names
from anabranch.cli._keys import read_keys
from anabranch.cli._processes import listen, run_workers, serve_app
from anabranch.cli._targets import load
from anabranch.errors import StoreError
from anabranch.stores import open_store

__all__ = ["Way", "serve"]

PORTS = range(2**16)


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is reached."""

    transport: Literal["stdio", "http"] = "stdio"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1


@dataclass(frozen=True, slots=True)
class _Offer:
    """What is served, in a form that other processes can be given."""

    targets: tuple[str, ...]
    model: str | None
    keys: tuple[str, ...] = field(repr=False)
    keeping: Keeping

    def make_server(self) -> MCPServer[Any]:
        return assemble(
            load(self.targets),
            keys=self.keys,
            sampler=open_sampler(self.model),
            keeping=self.keeping,
        )


@dataclass(frozen=True, slots=True)
class _WorkerApp:
    """Makes the application of one worker, in its own process."""

    offer: _Offer
    host: str

    def __call__(self) -> Starlette:
        log_to_stderr(logging.WARNING)
        # A session of the handshake era would live in one worker, and its next request may reach
        # another. So there are none.
        return self.offer.make_server().streamable_http_app(host=self.host, stateless_http=True)


def serve(targets: Sequence[str], way: Way, *, model: str | None, keeping: Keeping) -> None:
    """Serve until the client leaves (stdio) or the person stops it.

    Raises:
        CommandError: see the message.
    """
    _check(targets, way, keeping)
    log_to_stderr(logging.WARNING)
    console = Console()
    open_sampler(model)  # a wrong name is told before any target's code is run
    found = load(targets)
    offer = _Offer(tuple(targets), model, tuple(read_keys(os.environ, console.say)), keeping)
    server = assemble(found, keys=offer.keys, sampler=open_sampler(model), keeping=keeping)
    if keeping.store is not None:
        anyio.run(_reach, keeping.store)
    tools = ", ".join(tool_names(server)) or "no tools"
    if way.transport == "http":
        _serve_http(server, offer, way, tools, console)
        return
    if sys.stdin.isatty():
        console.say(f"Serving {tools} over stdio: an MCP client must be at the other end.")
    # The SDK reads stdin in a thread that cannot be interrupted, so Ctrl-C ends the process
    # outright, as a client does that kills it. Clients end it by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.run("stdio")


def _check(targets: Sequence[str], way: Way, keeping: Keeping) -> None:
    if not targets:
        raise UsageError("serve needs a TARGET: a Python file, a module, or module:attribute.")
    if way.port not in PORTS:
        raise UsageError(f"There is no port {way.port}. Choose one from 0 to 65535.")
    if way.workers < 1:
        raise UsageError(f"There cannot be {way.workers} workers. Choose 1 or more.")
    if way.workers > 1 and way.transport == "stdio":
        raise UsageError("Over stdio there is one process. Give --workers with --transport http.")
    if way.workers > 1 and keeping.store == "memory:":
        raise UsageError("Workers cannot share memory. Name a file or a database as the --store.")
    if not keeping.ttl > 0:
        raise UsageError(f"Nobody can answer in {keeping.ttl:g} s. Give --ttl more seconds.")


async def _reach(url: str) -> None:
    """Make sure that the store can be used, before anybody relies on it."""
    store = open_store(url)
    try:
        await store.find("")
    except StoreError as error:
        raise FailedError(str(error)) from error
    finally:
        await store.close()


def _serve_http(
    server: MCPServer[Any], offer: _Offer, way: Way, tools: str, console: Console
) -> None:
    host, port = way.host, way.port
    # Bound here, so that a port that is taken is told in one sentence, and port 0 gets a number.
    try:
        listener = listen(host, port)
    except OSError as error:
        raise FailedError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port."
        ) from error
    with listener:
        place = f"[{host}]" if ":" in host else host
        console.say(f"Serving {tools} at http://{place}:{listener.getsockname()[1]}/mcp")
        if way.workers > 1:
            run_workers(_WorkerApp(offer, host), listener, way.workers)
        else:
            serve_app(server.streamable_http_app(host=host), listener)
