"""Errors of models: a wrong name or script, a missing set-up, a provider that fails."""

from __future__ import annotations

from anabranch.errors import AnabranchError


class ModelError(AnabranchError):
    """A model cannot be opened, cannot be asked this, or (a scripted one) has no reply left.

    The message is a sentence on what is wrong and a sentence on what to do. It may quote a
    provider: where a tool's body lets this error escape, servers mask it as a foreign exception.

    Attributes:
        refused: whether the model does not take this request; without some block, it may.
        at: the numbers of the message and of the block in it that the provider names.
    """

    def __init__(
        self, message: str, *, refused: bool = False, at: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(message)
        self.refused = refused
        self.at = at


class ProviderError(ModelError):
    """A provider was asked, and did not reply or did not complete its reply.

    Attributes:
        status: the status of its HTTP response, ``None`` without one.
        retry_after: the seconds after which the provider allows another request, if it said so.
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
