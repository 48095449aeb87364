"""The error that a caller receives for an exception: one decision for every host and for sagas."""

import asyncio
import logging

import mcp_types as types
import pytest
from mcp import MCPError

from anabranch import CapabilityError, InvalidTokenError, StoreError, ToolError
from anabranch.mcp._error_mapping import REQUEST_STATE, SAGA_TOKEN, CallFailedError, mapped_errors


def mapped(
    error: BaseException, *, is_modern: bool = True, token: tuple[str, str] | None = REQUEST_STATE
) -> Exception:
    with (
        pytest.raises((MCPError, CallFailedError)) as raised,
        mapped_errors(is_modern=is_modern, token=token, unmapped=(BufferError,)),
    ):
        raise error
    return raised.value


def test_an_error_of_ours_is_a_result_with_its_message() -> None:
    failure = mapped(ToolError("the shop is closed"))
    assert isinstance(failure, CallFailedError)
    assert failure.text == "the shop is closed"


@pytest.mark.parametrize("error", [OSError("hunter2"), StoreError("hunter2"), KeyError("hunter2")])
def test_any_other_error_is_masked_and_its_text_is_only_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failure = mapped(error)
    assert isinstance(failure, CallFailedError)
    assert failure.text is None
    assert failure.__cause__ is error
    with caplog.at_level(logging.ERROR):
        failure.log("t")
    assert "hunter2" in caplog.text


def test_a_missing_capability_is_a_protocol_error_in_the_modern_era_alone() -> None:
    error = mapped(CapabilityError("elicitation"))
    assert isinstance(error, MCPError)
    assert error.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error.error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    failure = mapped(CapabilityError("elicitation"), is_modern=False)
    assert isinstance(failure, CallFailedError)
    assert "needs 'elicitation'" in str(failure.text)


@pytest.mark.parametrize("token", [REQUEST_STATE, SAGA_TOKEN])
def test_a_refused_token_is_one_frozen_message(token: tuple[str, str]) -> None:
    error = mapped(InvalidTokenError(), token=token)
    assert isinstance(error, MCPError)
    assert error.error.code == types.INVALID_PARAMS
    assert (error.error.message, error.error.data) == (token[0], {"reason": token[1]})


def test_a_refused_token_in_a_request_without_one_is_a_result() -> None:
    failure = mapped(InvalidTokenError(), token=None)
    assert isinstance(failure, CallFailedError)
    assert failure.text == str(InvalidTokenError())


def test_a_protocol_error_and_the_hosts_own_errors_are_unchanged() -> None:
    error = MCPError(types.INVALID_PARAMS, "not like that")
    assert mapped(error) is error
    with (
        pytest.raises(BufferError),
        mapped_errors(is_modern=True, token=None, unmapped=(BufferError,)),
    ):
        raise BufferError


async def test_cancellation_from_outside_is_unchanged_and_one_from_within_is_a_failure() -> None:
    failure = mapped(asyncio.CancelledError())
    assert isinstance(failure, CallFailedError)
    assert str(failure.__cause__) == "The call was cancelled from within, and has ended."

    async def wait() -> None:
        with mapped_errors(is_modern=True, token=None):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
