"""A warning that is logged once a minute, however often there is a reason for it."""

from __future__ import annotations

import logging
import time

MINUTE = 60.0


class ThrottledWarning:
    """One kind of warning, which foreign programs can cause as often as they like."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0

    def warn(self, text: str, *values: object) -> None:
        """Log it, unless that was done within the last minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + MINUTE
            self._logger.warning(text, *values)
