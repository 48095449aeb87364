"""``ChatClientError``: why a chat's server could not be reached, or what it refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from anabranch.errors import AnabranchError

B = TypeVar("B", bound=BaseModel)

LONGEST = 2_000
"""Characters of what a server says that are repeated in an error."""

UNAUTHORIZED = 401
ADVICE = {
    UNAUTHORIZED: "Give the server's token: token=….",
    403: "The server refuses this client.",
    404: "There is no such chat at this address.",
    421: "The server does not know the name by which it was reached; see its --allowed-host.",
    429: "The server takes no more requests just now. Try again later.",
}
"""What to do, where the server does not say."""


class ChatClientError(AnabranchError):
    """A chat's server cannot be reached, or has refused or failed; the message says why.

    Attributes:
        status: the HTTP status of a refusal: 401 without a valid token; 404 if there is no such
            thread or question; 409 if a turn is running, or a question was answered differently;
            410 if a question has expired; 422 if a message or an answer does not fit; 429 if there
            were too many requests. ``None`` if it is none.
        reason: why an answer was refused: ``unknown``, ``answered``, ``expired`` or ``invalid``.
        errors: what is wrong with an answer, by its fields; under an empty name, what is wrong with
            it as a whole.
        retry_after: seconds after which to try again, if the server says so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        errors: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.status = status
        self.reason = reason
        self.errors: Mapping[str, str] = errors or {}
        self.retry_after = retry_after
        super().__init__(message, message=message, status=status, reason=reason)


class _FieldProblem(BaseModel):
    field: str
    message: str


class _Refusal(BaseModel):
    error: str = ""
    reason: str = ""
    errors: list[_FieldProblem] = []


async def check_response(response: httpx2.Response) -> None:
    """Check that the server did what was asked.

    Raises:
        ChatClientError: it did not.
    """
    if response.is_success:
        return
    status = response.status_code
    try:
        refusal = _Refusal.model_validate_json(await response.aread())
    except ValidationError:  # it comes from something else, such as a proxy
        refusal = _Refusal()
    said = refusal.error[:LONGEST] or ADVICE.get(status, f"The server answered with {status}.")
    if status == UNAUTHORIZED:
        said = ADVICE[status]  # the server's own words are for a browser
    seconds = response.headers.get("retry-after", "")
    raise ChatClientError(
        said,
        status=status,
        reason=refusal.reason,
        errors={each.field: each.message for each in refusal.errors},
        retry_after=float(seconds) if seconds.isdecimal() else None,
    )


def read_text(model: type[B], text: str | bytes) -> B:
    """Return what the server sent, as ``model``.

    Raises:
        ChatClientError: it does not fit.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as problem:
        raise ChatClientError(
            "What answers at this address is no chat, or another release of one."
        ) from problem
