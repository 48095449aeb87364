"""Standard output of a server over stdio: the protocol's alone. What code prints goes to stderr.

The SDK moves the protocol to a descriptor of its own, so that nothing printed gets into it. But what Python
prints would wait in a buffer, and be written there when the server ends.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from io import TextIOBase
from typing import BinaryIO

WARNING = (
    "Standard output is the protocol's: what the server prints is shown here. Print to stderr, or use"
    " ctx.log, which reaches the client.\n"
)


class _Printed(TextIOBase):
    """Writes to stderr, at once, after one warning. ``buffer`` is what the SDK's server claims."""

    def __init__(self, buffer: BinaryIO) -> None:
        self.buffer = buffer
        self._warned = False

    def write(self, text: str, /) -> int:
        """Write ``text`` to stderr."""
        if not self._warned:
            self._warned = True
            sys.stderr.write(WARNING)
        sys.stderr.write(text)
        sys.stderr.flush()
        return len(text)


@contextmanager
def protocol_on_stdout() -> Generator[None]:
    """Within the block, what is printed goes to stderr; a server that begins there has stdout."""
    with redirect_stdout(_Printed(sys.stdout.buffer)):
        yield
