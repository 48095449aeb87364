"""``sys.exit()`` in an author's code, as an error of the call.

asyncio passes ``SystemExit`` on through the loop, past every handler: it would end the process, and
all other calls with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["exit_as_error", "without_exit"]


@contextmanager
def exit_as_error() -> Generator[None]:
    """Raise ``RuntimeError`` where what runs inside calls ``sys.exit()``."""
    try:
        yield
    except SystemExit as end:
        raise RuntimeError(
            f"sys.exit({end.code!r}) was called. It ends this call; to end the server, stop its process."
        ) from end


def without_exit(function: Callable[..., object]) -> Callable[..., object]:
    """Return ``function`` for a thread, with ``sys.exit()`` as an error."""
    return exit_as_error()(function)
