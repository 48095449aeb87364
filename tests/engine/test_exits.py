"""An exit that an author's code raises becomes an error; an exception of a signal handler stays unchanged."""

import asyncio
import signal
import types
from collections.abc import Generator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from anabranch._engine.functions import EXIT_AS_ERROR, Guarded, as_error, error_instead


async def leaves() -> str:
    raise SystemExit(3)


async def returns() -> str:
    return "a value"


async def test_a_guarded_coroutine_can_be_awaited_like_the_one_inside() -> None:
    assert await Guarded(returns()) == "a value"


async def test_an_exit_of_a_guarded_coroutine_that_is_sent_to_is_an_error() -> None:
    guarded = Guarded(leaves())
    with pytest.raises(RuntimeError, match=r"sys\.exit\(3\) was called"):
        guarded.send(None)


@types.coroutine
def waits() -> Generator[None]:
    yield


async def stays() -> None:
    await waits()


async def leaves_when_it_is_cancelled(error: BaseException) -> None:
    try:
        await waits()
    except ValueError:
        raise error from None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), r"sys\.exit\(3\) was called"),
        (GeneratorExit("x"), r"GeneratorExit\(x\) was raised, which is no Exception"),
        (KeyboardInterrupt(), r"KeyboardInterrupt\(\) was raised, which is no Exception"),
    ],
    ids=["SystemExit", "GeneratorExit", "KeyboardInterrupt"],
)
def test_an_exit_that_code_raises_is_an_error(error: BaseException, said: str) -> None:
    guarded = Guarded(leaves_when_it_is_cancelled(error))
    guarded.send(None)
    with pytest.raises(RuntimeError, match=said):
        guarded.throw(ValueError())
    with pytest.raises(RuntimeError, match=said), EXIT_AS_ERROR:
        raise error


@pytest.mark.parametrize("thrown", [GeneratorExit, KeyboardInterrupt])
def test_an_exit_from_outside_stays_unchanged(thrown: type[BaseException]) -> None:
    guarded = Guarded(stays())
    guarded.send(None)
    with pytest.raises(thrown):
        guarded.throw(thrown())


@pytest.mark.parametrize("error", [None, ValueError("x"), asyncio.CancelledError()], ids=repr)
def test_an_exception_that_ends_a_call_alone_stays_unchanged(error: Any) -> None:
    assert error_instead(error) is None


def test_a_cancellation_is_reported_as_a_sentence_and_an_error_as_itself() -> None:
    error = ValueError("x")
    assert as_error(error) is error
    cancelled = as_error(asyncio.CancelledError())
    assert str(cancelled) == "The call was cancelled from within, and has ended."


def test_an_exception_of_a_signal_handler_stays_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for a handler with bound arguments, such as the one of ``asyncio.run``."""

    def leave(status: int, number: int, frame: FrameType | None) -> None:
        raise SystemExit(status)

    handler = partial(leave, 130)

    def handler_of(number: int) -> object:
        return handler if number == signal.SIGINT else signal.SIG_DFL

    monkeypatch.setattr(signal, "getsignal", handler_of)
    with pytest.raises(SystemExit) as raised:
        handler(signal.SIGINT, None)
    assert error_instead(raised.value) is None


def test_an_exception_of_a_handler_called_outside_a_signal_is_an_error() -> None:
    def leave() -> None:
        raise SystemExit(130)

    with pytest.raises(SystemExit) as raised:
        leave()
    assert isinstance(error_instead(raised.value), RuntimeError)
