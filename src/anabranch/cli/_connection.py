"""The connection to a target: to a server process started for it, or to the URL of a running one.

A server process inherits this process's environment, except for the keys: it ends with the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TypeVar

import anyio
from mcp import Client, InputRequiredRoundsExceededError, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from anabranch._aio import cancel_and_wait
from anabranch._asking import Answerer
from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal import CommandError, FailedError, UsageError, failing_as
from anabranch.cli._call_trace import CallTrace, traced
from anabranch.cli._options import MODEL, Era, ReachOptions
from anabranch.cli._stores import CALL_KEY, new_key
from anabranch.cli._targets import check_reach, is_server, is_url, split_target
from anabranch.errors import AnabranchError, ToolError
from anabranch.mcp import (
    COMMAND,
    Connectable,
    WithHeaders,
    causes,
    command_of,
    connect,
    offers_sagas,
)

T = TypeVar("T")

FAREWELL = 2.0
"""Maximum seconds for the end of a connection when a command is interrupted."""


def server_of(
    target: str, limits: Limits = UNLIMITED, reach: ReachOptions = ReachOptions()
) -> WithHeaders | StdioServerParameters:
    check_reach(target, reach)
    if is_url(target):
        if limits != UNLIMITED:
            raise UsageError(
                f"{target} is a running server with its own limits. Pass the limits to anabranch serve."
            )
        return WithHeaders(target, reach.headers)
    if target.startswith(COMMAND):
        if limits != UNLIMITED:
            raise UsageError(
                "A command:… server sets its limits itself. Omit the options for limits."
            )
        with failing_as(UsageError, ValueError):
            return command_of(target, reach.variables)
    split_target(target)
    command, *arguments = [*_command(target), *_options_of(limits)]
    return StdioServerParameters(command=command, args=arguments, env=_environment())


async def open_session(
    target: str,
    server: Connectable,
    answerer: Answerer,
    act: Callable[[Client], Awaitable[T]],
    *,
    era: Era = "auto",
    trace: CallTrace | None = None,
) -> T:
    """Connect to the ``server`` of ``target``, and return the value of ``act(client)``.

    A cancellation ends ``act`` first, while the connection can still tell the server, which undoes
    its call.
    """
    connected = False
    opened = _traced(server, trace)
    acting = anyio.CancelScope()

    async def connect_and_act() -> T:
        nonlocal connected
        # Our server of a file or module has compared its results with their schemas.
        async with connect(
            opened, answerer, era="auto" if era == "saga" else era, checks_results=is_server(target)
        ) as client:
            connected = True
            with acting:
                if era == "saga" and not await offers_sagas(client):
                    raise UsageError("This server offers no sagas. Leave out --era saga.")
                return await act(client)
            await _flush(client)
            raise asyncio.CancelledError

    session = asyncio.ensure_future(connect_and_act())
    try:
        await asyncio.wait({session})
        return session.result()
    except asyncio.CancelledError:
        acting.cancel()
        logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # against late tracebacks
        with anyio.CancelScope(shield=True):
            if connected:
                await asyncio.wait({session}, timeout=FAREWELL)
            await cancel_and_wait([session])
        raise
    except Exception as error:
        refusal = await server.last_words() if isinstance(server, WithHeaders) else ""
        known = _explain(error, target, refusal)
        if known is None:
            raise
        if not connected and not is_server(target):
            known = await _why_it_did_not_start(target)
        elif not connected and target not in str(known):  # in the server's own words
            known = FailedError(f"Cannot connect to {target}: {known}")
        raise known from error


def _traced(server: Connectable, trace: CallTrace | None) -> Connectable:
    if trace is None or not isinstance(server, WithHeaders | StdioServerParameters):
        return server
    started = stdio_client(server) if isinstance(server, StdioServerParameters) else server
    return traced(started, trace)


async def _flush(client: Client) -> None:
    """Wait until the server has received all earlier messages, such as a cancellation.

    The SDK ends a connection over HTTP together with the messages on their way. Since 2026-07-28,
    the end of a request's own connection cancels the request.
    """
    if client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return
    with suppress(MCPError), anyio.move_on_after(FAREWELL):
        await client.session.send_ping()


def _command(target: str) -> list[str]:
    # With -P, files in this folder cannot shadow installed packages; the target's own neighbours
    # are found nevertheless.
    return [sys.executable, "-P", "-m", "anabranch", "serve", target, "--transport", "stdio"]


def _options_of(limits: Limits) -> list[str]:
    given = asdict(limits).items()
    named = {f"--{name.replace('_', '-')}": value for name, value in given if value is not None}
    return [f"{option}={value}" for option, value in named.items()]


def _environment() -> dict[str, str]:
    # The model is the caller's: a server with its own model would never ask.
    inherited = {name: value for name, value in os.environ.items() if name != MODEL}
    return {CALL_KEY: new_key(), **inherited}


async def _why_it_did_not_start(target: str) -> CommandError:
    """Return the error for a server process that ended before it answered.

    The SDK does not report the exit status, so the process starts once more, with no input. A
    working server ends immediately, and a broken one fails as before.
    """
    done = await anyio.run_process(
        _command(target), check=False, stdin=subprocess.DEVNULL, env=_environment()
    )
    if done.returncode == UsageError.status:
        return UsageError(f"{target} cannot be served; the reason is above.")
    return FailedError(f"The server for {target} ended before it answered.")


def _explain(error: Exception, target: str, refusal: str) -> CommandError | None:
    """Return the error to report for ``error``, ``None`` if it is a bug in this library.

    The server's ``refusal`` of a request says more than the SDK's errors, and less than the error
    of a command or a tool.
    """
    for cause in causes(error):
        if isinstance(cause, CommandError):
            return cause
        if isinstance(cause, ToolError):
            return FailedError(str(cause))
        if (message := _message_for(cause, target)) is not None:
            return FailedError(f"Cannot use {target}: {refusal}." if refusal else message)
    return None


def _message_for(cause: BaseException, target: str) -> str | None:
    match cause:
        case MCPError() if cause.error.code == CONNECTION_CLOSED:
            return f"The server of {target} ended the connection."
        case MCPError():
            return cause.error.message
        case (
            InputRequiredRoundsExceededError(max_rounds=most)
            | AnabranchError(facts={"max_rounds": most})
        ):
            return f"The tool asked in more than {most} rounds."
        case ValidationError():
            return f"{target} answered with something that is not MCP."
        case _ if isinstance(cause, OSError) or type(cause).__module__.startswith("http"):
            return f"Cannot reach {target}: {str(cause).rstrip('.') or type(cause).__name__}."
        case _:  # nothing to do with the connection
            return None
