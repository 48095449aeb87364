"""How the caller of a tool is told of an error, in the words of its era and of the host.

Owns which of our errors are protocol errors and which a tool's result. The host's own error type
is given: its message is shown, and the host masks all others.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import mcp_types as types
from mcp import MCPError

from anabranch.errors import AnabranchError, CapabilityError, InvalidTokenError, StoreError
from anabranch.mcp._protocol import required_capabilities
from anabranch.mcp._request import McpRequest
from anabranch.mcp._serving import ToBeContinued
from anabranch.tool import Tool

__all__ = ["plain", "told"]


@contextmanager
def told(
    tool: Tool[Any], request: McpRequest, tool_error: type[Exception]
) -> Generator[None, None, None]:
    """Turn our errors into ``MCPError`` or ``tool_error``; others pass, for the host to mask."""
    try:
        yield
    except CapabilityError as error:
        if not request.is_modern:
            raise tool_error(str(error)) from error
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            str(error),
            required_capabilities(error.capability),
        ) from error
    except InvalidTokenError as error:
        if not request.is_modern:
            raise tool_error(str(error)) from error
        # In the words that the SDK's boundary uses for every other reason.
        data = {"reason": "invalid_request_state"}
        raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState", data) from error
    except StoreError:  # about the server's database, which is not the caller's business
        raise
    except AnabranchError as error:
        raise tool_error(str(error)) from error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The tool's own: passed on, it would end the connection, and all other calls on it.
        raise RuntimeError(f"tool {tool.name!r} was cancelled from within") from cancelled


def plain(tool: Tool[Any], outcome: object, tool_error: type[Exception]) -> object:
    """Return what :func:`serve` returned for ``tool`` as the host's result.

    Raises:
        Exception: a ``tool_error`` with the text of a ``ToBeContinued``, where the tool's output
            schema promises something else than a text.
    """
    if not isinstance(outcome, ToBeContinued):
        return outcome
    if tool.returns in (str, Any, inspect.Signature.empty):
        return outcome.text
    raise tool_error(outcome.text)
