"""What the tools of a test have done, in order: a step that notes something, and its undo."""

from collections.abc import Generator

import pytest

__all__ = ["DONE", "forget", "note", "nothing_done"]

DONE: list[str] = []


@pytest.fixture
def nothing_done() -> Generator[None]:
    """Begin, and end, with nothing done."""
    DONE.clear()
    yield
    DONE.clear()


def note(what: str) -> str:
    """Note something."""
    DONE.append(what)
    return what


def forget(what: str) -> None:
    """Undo a note."""
    DONE.append(f"not {what}")
