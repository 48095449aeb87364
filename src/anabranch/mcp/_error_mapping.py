"""Maps the exceptions of a call to errors for its caller, for every MCP host and for sagas.

The caller may read the messages of this library's errors. All other errors may hold secrets: only
the log has their text, and the caller sees an id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from anabranch._asking import CAPABILITIES, describe
from anabranch._engine import as_error, error_instead
from anabranch._text import encodable
from anabranch.errors import (
    AnabranchError,
    CapabilityError,
    IdempotencyKeyError,
    InvalidTokenError,
    StoreError,
    ToolError,
    masked,
)
from anabranch.mcp._protocol import required_capabilities
from anabranch.models import ModelError

logger: logging.Logger = logging.getLogger("anabranch.mcp")

# The wording is the SDK's; the reason is in our log alone.
REQUEST_STATE: Final = ("Invalid or expired requestState", "invalid_request_state")
SAGA_TOKEN: Final = ("Invalid or expired sagaToken", "invalid_saga_token")


class CallFailedError(Exception):
    """A call failed, and its caller receives an error result; ``__cause__`` is the error.

    ``text`` is ``None`` for an unexpected error, whose text is for the log.
    """

    def __init__(self, text: str | None) -> None:
        super().__init__(text)
        self.text = encodable(text)

    def masked(self, what: str) -> str:
        return masked(what, self.__cause__ or self)

    def log(self, tool: str) -> None:
        """Log the cause of an unexpected error, for hosts that do not log it."""
        if self.text is None:
            what = self.masked(f"tool {tool!r} raised an unexpected exception")
            logger.error(what, exc_info=self.__cause__)


def invalid_token(token: tuple[str, str]) -> MCPError:
    message, reason = token
    return MCPError(types.INVALID_PARAMS, message, {"reason": reason})


@contextmanager
def mapped_errors(
    *, is_modern: bool, token: tuple[str, str] | None, unmapped: tuple[type[Exception], ...] = ()
) -> Generator[None]:
    """Turn every exception of a call into an ``MCPError`` or a :class:`CallFailedError`.

    An ``InvalidTokenError`` concerns ``token``, if the request has such a parameter. The host's own
    errors, ``unmapped``, and a cancellation from outside are passed on.

    Raises:
        MCPError: if the request is at fault, or the tool has raised the error itself.
        CallFailedError: if any other error occurs.
    """
    passed_on: tuple[type[Exception], ...] = (MCPError, *unmapped)
    try:
        yield
    except passed_on as error:
        error.args = encodable(error.args)
        if isinstance(error, MCPError):
            error.error = encodable(error.error)
        raise
    except AnabranchError as error:
        raise _mapped(error, is_modern=is_modern, token=token) from error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Author code has cancelled itself, which would end the connection with all its calls.
        raise CallFailedError(None) from as_error(cancelled)
    except Exception as error:
        raise CallFailedError(None) from error
    except BaseException as error:  # from a validator or a serializer; it would end the server
        if (instead := error_instead(error)) is None:
            raise
        raise CallFailedError(None) from instead


@contextmanager
def checked_results() -> Generator[None]:
    """Report to the caller, and log, why the host refuses a tool's value in the block."""
    try:
        yield
    except ValidationError as error:
        problem = f"does not fit its output schema: {describe(error)}"
    except (PydanticSerializationError, RecursionError, ValueError) as error:
        problem = "is nested too deeply, refers to itself, or is not JSON"
        logger.debug("a value could not be written", exc_info=error)
    else:
        return
    logger.error("a tool's return value %s", problem)
    raise ToolError(f"The tool's return value {problem}.")


def _mapped(
    error: AnabranchError, *, is_modern: bool, token: tuple[str, str] | None
) -> MCPError | CallFailedError:
    if isinstance(error, CapabilityError) and is_modern and error.capability in CAPABILITIES:
        data: dict[str, Any] = required_capabilities(error.capability)
        text = encodable(str(error))
        return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, text, data)
    if isinstance(error, IdempotencyKeyError):
        return MCPError(types.INVALID_PARAMS, str(error), {"reason": "idempotency_key"})
    if isinstance(error, InvalidTokenError) and token is not None:
        return invalid_token(token)
    if isinstance(error, StoreError | ModelError):  # about the server's database, or its provider
        return CallFailedError(None)
    return CallFailedError(str(error))
