"""The connection to a target: to a server process started for it, or to the URL of a running one.

A server process inherits this one's environment, and gets keys of its own, since it lives no longer
than the call. A connection that fails is reported in one sentence.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TypeVar

import anyio
from mcp import Client, InputRequiredRoundsExceededError, MCPError, StdioServerParameters
from mcp_types import CONNECTION_CLOSED
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from anabranch._aio import cancel_and_wait
from anabranch._asking.answerer import Answerer
from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal.exits import CommandError, FailedError, UsageError
from anabranch.cli._call_trace import CallTrace, watched
from anabranch.cli._options import MODEL, Era
from anabranch.cli._stores import CALL_KEY, new_key
from anabranch.cli._targets import is_server, is_url, split_target
from anabranch.errors import ToolError
from anabranch.mcp._client import Connectable, connect, offers_sagas
from anabranch.mcp._repeating import causes
from anabranch.mcp._saga_client import SagaRoundsExceededError
from anabranch.mcp._transports import COMMAND, WithHeaders, command_of

T = TypeVar("T")

FAREWELL = 2.0
"""Seconds that the end of a connection may take when a command is interrupted."""


def server_of(
    target: str,
    limits: Limits = UNLIMITED,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> WithHeaders | StdioServerParameters:
    """Return what the SDK's client is to connect to.

    ``limits`` are for a server that is started here, ``headers`` for one that runs, and the
    variables ``env`` for one that a command starts.

    Raises:
        UsageError: there is no such file or module, or what is given is for another kind.
    """
    if env and not target.startswith(COMMAND):
        raise UsageError("--env is for a server that a command starts: command:….")
    if is_url(target):
        if limits != UNLIMITED:
            raise UsageError(
                f"{target} runs already, with limits of its own. Give yours to anabranch serve."
            )
        return WithHeaders(target, headers or {})
    if headers:
        raise UsageError("--token and --header are for a server at a URL.")
    if target.startswith(COMMAND):
        if limits != UNLIMITED:
            raise UsageError(
                "Limits are for a TARGET that anabranch serves; this command does not."
            )
        try:
            return command_of(target, env)
        except ValueError as error:
            raise UsageError(str(error)) from error
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
    """Connect to ``server``, the server of ``target``; return what ``act`` returns.

    ``trace`` describes the messages of a server of :func:`server_of`. If this is cancelled, ``act`` is
    cancelled first, while the connection is there to say so: the server undoes what it has done.

    Raises:
        CommandError: ``act`` raised it; or the connection could not be made, broke, or carried
            something other than MCP.
    """
    connected = False
    opened = _traced(server, trace)
    acting = anyio.CancelScope()

    async def connect_and_act() -> T:
        nonlocal connected
        async with connect(opened, answerer, era="auto" if era == "saga" else era) as client:
            connected = True
            with acting:
                if era == "saga":
                    await _require_sagas(client)
                return await act(client)
            await _flush(client)
            raise asyncio.CancelledError

    session = asyncio.ensure_future(connect_and_act())
    try:
        await asyncio.wait({session})
        return session.result()
    except asyncio.CancelledError:
        acting.cancel()
        logging.getLogger("mcp.client").setLevel(logging.CRITICAL)  # of late messages: tracebacks
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
    """Return a server whose messages are described, if it is one of :func:`server_of`."""
    if trace is None or not isinstance(server, WithHeaders | StdioServerParameters):
        return server
    return watched(server, trace)


async def _flush(client: Client) -> None:
    """Wait until the server has what was sent before, such as a cancellation.

    The SDK ends a connection over HTTP with what is on its way. Since 2026-07-28 a request is
    cancelled by the end of its own connection.
    """
    if client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return
    with suppress(MCPError), anyio.move_on_after(FAREWELL):
        await client.session.send_ping()


async def _require_sagas(client: Client) -> None:
    if not await offers_sagas(client):
        raise UsageError("This server offers no sagas. Leave out --era saga.")


def _command(target: str) -> list[str]:
    # With -P, files in this folder cannot shadow installed packages; the target's own neighbours
    # are found nevertheless.
    return [sys.executable, "-P", "-m", "anabranch", "serve", target, "--transport", "stdio"]


def _options_of(limits: Limits) -> list[str]:
    given = asdict(limits).items()
    named = {f"--{name.replace('_', '-')}": value for name, value in given if value is not None}
    return [f"{option}={value}" for option, value in named.items()]


def _environment() -> dict[str, str]:
    # The model is the caller's: a server with a model of its own would never ask.
    inherited = {name: value for name, value in os.environ.items() if name != MODEL}
    return {CALL_KEY: new_key(), **inherited}


async def _why_it_did_not_start(target: str) -> CommandError:
    """Return the error for a server process that ended before it answered.

    Its exit status says whether the target is at fault, but the SDK does not report it. So the
    process is started once more, with nothing to read: a working server ends at once, a broken one
    fails as before. What it wrote to stderr has been shown already.
    """
    done = await anyio.run_process(
        _command(target), check=False, stdin=subprocess.DEVNULL, env=_environment()
    )
    if done.returncode == UsageError.status:
        return UsageError(f"{target} cannot be served; the reason is above.")
    return FailedError(f"The server for {target} ended before it answered.")


def _explain(error: Exception, target: str, refusal: str) -> CommandError | None:
    """Return the error to report for ``error``, ``None`` if it is a bug in this library.

    The SDK's tasks raise exception groups; one known cause is enough. How the server has refused a
    request, ``refusal``, says more than the SDK's errors, but not than a command's or a tool's own.
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
        case InputRequiredRoundsExceededError() | SagaRoundsExceededError():
            return f"The tool asked in more than {cause.max_rounds} rounds."
        case ValidationError():
            return f"{target} answered with something that is not MCP."
        case _ if isinstance(cause, OSError) or type(cause).__module__.startswith("http"):
            return f"Cannot reach {target}: {str(cause).rstrip('.') or type(cause).__name__}."
        case _:  # nothing to do with the connection
            return None
