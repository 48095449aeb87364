"""Shortens waits of the engine, for tests of many calls."""

import pytest

from anabranch._engine import compensations, quiescence


def shorten_grace(patch: pytest.MonkeyPatch) -> None:
    """End a round soon after all strands wait, even if a background task runs."""
    patch.setattr(quiescence, "GRACE", 0.01)


def never_retry_undos(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compensations, "RETRY_AFTER", ())
