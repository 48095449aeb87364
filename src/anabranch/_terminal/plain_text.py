"""Text made safe to show: what could change the terminal is replaced.

It stands alone because every command needs it, even those that never ask a question.
"""

from __future__ import annotations

import re

__all__ = ["printable"]

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return ``text`` with every control character replaced, except tabs and line breaks.

    Much of what is shown comes from a server or a model, and neither may move the cursor, change
    colours or set the title of the window.
    """
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
