"""Warnings of operations that were never awaited: they name the author's line, and no library's.

It costs a little at each call of a coroutine function, so it is for servers whose author looks on.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import TextIO

from anabranch.errors import is_authors

DEPTH = 4
"""Frames recorded of a place: at most three lie between an operation and the line of the author."""
_FRAME = re.compile(r'  File "([^"]+)", line \d+.*\n(?:    .*\n?)*')


def name_forgotten_awaits() -> None:
    """Have such warnings name lines from now on."""
    sys.set_coroutine_origin_tracking_depth(DEPTH)
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = str(message)
        if "was never awaited" not in text:
            usual(message, category, filename, lineno, file, line)
            return
        own = _FRAME.sub(lambda frame: frame[0] if is_authors(frame[1]) else "", text)
        (file or sys.stderr).write(f"{category.__name__}: {own.rstrip()}\n")

    warnings.showwarning = show
