"""``sys.exit()`` in an author's code, as an error of the call.

asyncio passes ``SystemExit`` on through the loop, past every handler: it would end the process, and
all other calls with it.
"""

from __future__ import annotations

from contextlib import ContextDecorator

__all__ = ["EXIT_AS_ERROR"]


class _ExitAsError(ContextDecorator):
    """Raises ``RuntimeError`` where what runs inside calls ``sys.exit()``; also a decorator."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, SystemExit):
            raise RuntimeError(  # noqa: TRY004 - an exit is no wrong type
                f"sys.exit({error.code!r}) was called. It ends this call; to end the server, stop"
                " its process."
            ) from error


EXIT_AS_ERROR: _ExitAsError = _ExitAsError()
"""One for all: thousands of branches run inside of it."""
