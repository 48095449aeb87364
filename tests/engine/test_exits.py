"""Exits of an author's code as errors, and what a signal raises as it is."""

from __future__ import annotations

import signal
from functools import partial
from types import FrameType

import pytest

from anabranch._engine.exits import Guarded, error_instead


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


def test_what_the_handler_of_a_signal_raises_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the handler has arguments of its own, as that of ``asyncio.run`` has."""

    def leave(status: int, number: int, frame: FrameType | None) -> None:
        raise SystemExit(status)

    handler = partial(leave, 130)

    def handler_of(number: int) -> object:
        return handler if number == signal.SIGINT else signal.SIG_DFL

    monkeypatch.setattr(signal, "getsignal", handler_of)
    with pytest.raises(SystemExit) as raised:
        handler(signal.SIGINT, None)
    assert error_instead(raised.value) is None


def test_what_the_same_function_raises_that_handles_no_signal_is_an_error() -> None:
    def leave() -> None:
        raise SystemExit(130)

    with pytest.raises(SystemExit) as raised:
        leave()
    assert isinstance(error_instead(raised.value), RuntimeError)
