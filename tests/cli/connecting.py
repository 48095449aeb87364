"""One connection of the command line to a server, and the error that ends the connection."""

import io
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from anabranch._terminal import CommandError, Console, Respondent
from anabranch.cli._connection import open_session

URL = "http://server.example/mcp"


async def attempt(act: Callable[[Client], Awaitable[Any]], server: Any = None) -> CommandError:
    """Connect to a server in this process and return the error that ended the connection."""
    console = Console(io.StringIO(), interactive=False)
    with pytest.raises(CommandError) as raised:
        await open_session(URL, server or MCPServer("plain"), Respondent(console), act)
    return raised.value
