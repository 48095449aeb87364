"""The errors that the command line reports for a broken connection."""

import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, InputRequiredRoundsExceededError, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.server.mcpserver import MCPServer

from anabranch._budget import Limits
from anabranch._terminal import Console, FailedError, Respondent, UsageError
from anabranch.cli._connection import open_session, server_of
from anabranch.mcp import SagaRoundsExceededError
from tests.cli.connecting import URL, attempt


def raising(error: Exception) -> Callable[[Client], Awaitable[None]]:
    async def act(client: Client) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MCPError(types.CONNECTION_CLOSED, "?"), f"The server of {URL} ended the connection."),
        (MCPError(types.INVALID_PARAMS, "No, not so."), "No, not so."),
        (InputRequiredRoundsExceededError(100), "The tool asked in more than 100 rounds."),
        (SagaRoundsExceededError(100), "The tool asked in more than 100 rounds."),
        (ConnectionResetError("reset by peer"), f"Cannot reach {URL}: reset by peer."),
        (TimeoutError(), f"Cannot reach {URL}: TimeoutError."),
        (ExceptionGroup("", [ValueError(), OSError("gone")]), f"Cannot reach {URL}: gone."),
        (FailedError("As it is."), "As it is."),
    ],
)
async def test_an_error_of_the_connection_is_reported(error: Exception, words: str) -> None:
    ended = await attempt(raising(error))
    assert (type(ended), str(ended)) == (FailedError, words)


async def test_a_server_that_talks_something_else_is_reported() -> None:
    async def act(client: Client) -> None:
        types.Tool.model_validate({})

    ended = await attempt(act)
    assert str(ended) == f"{URL} answered with something that is not MCP."


async def test_an_error_of_this_library_is_not_dressed_up() -> None:
    console = Console(io.StringIO(), interactive=False)
    with pytest.raises(ExceptionGroup) as raised:
        await open_session(URL, MCPServer("plain"), Respondent(console), raising(KeyError("bug")))
    assert raised.group_contains(KeyError, match="bug")


async def test_an_address_that_cannot_be_reached_is_reported() -> None:
    @asynccontextmanager
    async def unreachable() -> AsyncGenerator[Any]:
        raise OSError("no route")
        yield

    transport: Transport = unreachable()
    ended = await attempt(raising(KeyError()), transport)
    assert str(ended) == f"Cannot reach {URL}: no route."


async def test_a_server_without_sagas_is_not_called_by_them() -> None:
    respondent = Respondent(Console(io.StringIO(), interactive=False))
    with pytest.raises(UsageError) as raised:
        await open_session(URL, MCPServer("plain"), respondent, raising(KeyError()), era="saga")
    assert str(raised.value) == "This server offers no sagas. Leave out --era saga."


def test_a_server_process_gets_this_ones_environment_but_not_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_MODEL", "script:model.json")
    monkeypatch.setenv("DATABASE", "here")
    monkeypatch.delenv("ANABRANCH_KEYS", raising=False)
    started = server_of(__file__)
    assert isinstance(started, StdioServerParameters)
    assert started.env is not None
    assert started.env["DATABASE"] == "here"
    assert "ANABRANCH_MODEL" not in started.env
    assert len(started.env["ANABRANCH_CALL_KEY"]) >= 32


def test_keys_that_are_set_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_KEYS", "k" * 32)
    started = server_of(__file__)
    assert isinstance(started, StdioServerParameters)
    assert (started.env or {})["ANABRANCH_KEYS"] == "k" * 32


def test_an_address_is_not_changed_before_connecting() -> None:
    assert not isinstance(server_of(URL), StdioServerParameters)
    with pytest.raises(UsageError, match=f"{URL} is a running server with its own limits"):
        server_of(URL, Limits(max_tokens=5))


def test_limits_are_passed_to_the_process_that_is_started() -> None:
    started = server_of(__file__, Limits(max_depth=0, timeout=1.5))
    assert isinstance(started, StdioServerParameters)
    assert started.args[-2:] == ["--max-depth=0", "--timeout=1.5"]
