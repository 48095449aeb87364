"""Waits of the engine that a test of many calls shortens."""

import pytest

from anabranch._engine import compensations, quiescence


def shorten_grace(patch: pytest.MonkeyPatch) -> None:
    """End a round soon after all strands wait, although something may run in the background."""
    patch.setattr(quiescence, "GRACE", 0.01)


def never_retry_undos(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compensations, "RETRY_AFTER", ())
