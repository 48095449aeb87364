"""Errors of models: a wrong name or script, a missing setup, or a failing provider."""

from __future__ import annotations

from anabranch.errors import AnabranchError


class ModelError(AnabranchError):
    """A model cannot be opened or asked, or a scripted model has no reply left.

    One sentence of the message names the problem, another the remedy. The message may quote a
    provider, so servers mask this error like a foreign exception if a tool's body lets it escape.

    Attributes:
        refused: whether the model refuses this request; it may take the request without some block.
        at: the numbers of the message and of its block that the provider names.
    """

    def __init__(
        self, message: str, *, refused: bool = False, at: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.at = at


class ProviderError(ModelError):
    """A provider was asked, and sent no complete reply.

    Attributes:
        status: the status of the HTTP response; ``None`` without one.
        retry_after: the seconds after which the provider allows another request, if it names them.
        passing: whether the same request may succeed later.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        passing: bool = False,
        refused: bool = False,
        at: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(message, refused=refused, at=at)
        self.status = status
        self.retry_after = retry_after
        self.passing = passing
