"""A diary of the steps and undos that a test's tools ran, in order."""

from collections.abc import Generator

import pytest

DONE: list[str] = []


@pytest.fixture
def nothing_done() -> Generator[None]:
    DONE.clear()
    yield
    DONE.clear()


def note(what: str) -> str:
    DONE.append(what)
    return what


def forget(what: str) -> None:
    DONE.append(f"not {what}")
