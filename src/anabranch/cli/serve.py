"""``anabranch serve``: the tools of some targets as an MCP server.

Owns the two ways of running: over stdin and stdout, or over HTTP at ``/mcp``.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer

from anabranch.cli.call import open_sampler
from anabranch.cli.console import Console, log_to_stderr
from anabranch.cli.errors import FailedError, UsageError
from anabranch.cli.keys import read_keys
from anabranch.cli.server import assemble, tool_names
from anabranch.cli.targets import load

__all__ = ["serve"]

PORTS = range(2**16)
GRACE = 2
"""Seconds that open connections get when the server is stopped."""


def serve(
    targets: Sequence[str],
    *,
    transport: Literal["stdio", "http"],
    host: str,
    port: int,
    model: str | None,
) -> None:
    """Serve until the client leaves (stdio) or the person stops it.

    Raises:
        CommandError: see the message.
    """
    if not targets:
        raise UsageError("serve needs a TARGET: a Python file, a module, or module:attribute.")
    if port not in PORTS:
        raise UsageError(f"There is no port {port}. Choose one from 0 to 65535.")
    log_to_stderr(logging.WARNING)
    sampler = open_sampler(model)
    console = Console()
    found = load(targets)
    server = assemble(found, keys=read_keys(os.environ, console.say), sampler=sampler)
    tools = ", ".join(tool_names(server)) or "no tools"
    if transport == "http":
        _serve_http(server, host, port, tools, console)
        return
    if sys.stdin.isatty():
        console.say(f"Serving {tools} over stdio: an MCP client must be at the other end.")
    # The SDK reads stdin in a thread that cannot be interrupted, so Ctrl-C ends the process
    # outright, as a client does that kills it. Clients end it by closing stdin.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.run("stdio")


def _serve_http(server: MCPServer[Any], host: str, port: int, tools: str, console: Console) -> None:
    app = server.streamable_http_app(host=host)
    # Bound here, so that a port that is taken is told in one sentence, and port 0 gets a number.
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise FailedError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Choose another --port."
        ) from error
    with listener:
        config = uvicorn.Config(
            app, log_level="warning", timeout_graceful_shutdown=GRACE, ws="none"
        )
        place = f"[{host}]" if ":" in host else host
        console.say(f"Serving {tools} at http://{place}:{listener.getsockname()[1]}/mcp")
        with suppress(KeyboardInterrupt):  # the person has stopped it, as they should
            anyio.run(uvicorn.Server(config).serve, [listener])
