"""What can go wrong with a model: its name, its script, its provider's set-up, its provider."""

from __future__ import annotations

__all__ = ["ModelError", "ProviderError"]


class ModelError(ValueError):
    """A model cannot be opened, cannot be asked this, or (a scripted one) has nothing to say.

    The message is one sentence on what is wrong and one on what to do.
    """


class ProviderError(ModelError):
    """A provider was asked, and did not answer, or not to the end.

    Attributes:
        status: of the HTTP response that said so, ``None`` if there was none.
        retry_after: the seconds that the provider wants to be left alone, if it said.
        passing: whether the same request may well be answered later.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        passing: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.passing = passing
