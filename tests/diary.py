"""What the tools of a test have done, in order: a step that notes something, and its undo."""

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
