"""A warning that is logged at most once a minute."""

from __future__ import annotations

import logging
import time

MINUTE = 60.0


class ThrottledWarning:
    """One kind of warning that other programs can cause as often as they like."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0

    def warn(self, text: str, *values: object) -> None:
        """Log the warning, unless it was logged within the last minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + MINUTE
            self._logger.warning(text, *values)
