"""What can be wrong with a model's name, its script or its provider's set-up."""

from __future__ import annotations

__all__ = ["ModelError"]


class ModelError(ValueError):
    """A model cannot be opened, or a scripted one has nothing to say.

    The message is one sentence on what is wrong and one on what to do.
    """
