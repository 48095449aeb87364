"""Maps pydantic-ai's exceptions to ``ModelError`` and ``ProviderError``.

For each kind of exception, one sentence names the problem and one the remedy. The message quotes
the provider, shortened; the exception of the provider's client is the cause.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from pydantic_ai import exceptions as ai

from anabranch.messages import Message
from anabranch.models._model_errors import ModelError, ProviderError
from anabranch.models._refused_place import refused_place

SHOWN = 300


@dataclass(frozen=True)
class _Kind:
    happened: str
    remedy: str
    passing: bool = False


_SLOW = _Kind("did not answer in time", "Ask again, or allow it more time.", passing=True)
_LOST = _Kind(
    "could not be reached, or broke off", "Check the connection and ask again.", passing=True
)
_UNREADABLE = _Kind("gave no reply that can be used", "Ask again.", passing=True)
_REFUSED = _Kind("refused the request", "Asking the same again will not help.")
TOO_LARGE = 413
"""The HTTP status for a request with too many bytes, for example large images."""
_KINDS: tuple[tuple[type[ai.ModelAPIError], _Kind], ...] = (
    (ai.ModelRequestTimeout, _SLOW),
    (ai.ModelTimeoutError, _SLOW),
    (ai.ModelConnectionError, _LOST),
    (ai.ModelRateLimitError, _Kind("wants fewer requests", "Ask again later.", passing=True)),
    (ai.ModelQuotaExceededError, _Kind("has no credit left for this key", "Top up the account.")),
    (ai.ModelUnavailableError, _Kind("is overloaded", "Ask again later.", passing=True)),
    (ai.ModelServerError, _Kind("failed", "Ask again later.", passing=True)),
    (
        ai.ModelContextWindowExceededError,
        _Kind("cannot take so long a conversation", "Shorten it, or go on from an earlier node."),
    ),
    (ai.ModelAuthenticationError, _Kind("refused the key", "Check the provider's key.")),
    (ai.ModelNotFoundError, _Kind("is not known there", "Check the model's name.")),
    (ai.ModelRequestRejectedError, _REFUSED),
    (ai.ModelAPIError, _UNREADABLE),
)
"""The first match counts, so a subclass comes before its bases."""


@contextmanager
def mapped_errors(model: str, messages: Sequence[Message] = ()) -> Generator[None]:
    """Map the exceptions of a provider's client to ``ProviderError``, and misuse to ``ModelError``.

    Args:
        model: the name of the model.
        messages: the conversation in the request.
    """
    try:
        yield
    except ai.ModelAPIError as error:
        raise _as_ours(model, error, messages) from error
    except ai.UnexpectedModelBehavior as error:
        message = f"{model} {_UNREADABLE.happened}: {_short(error.message)}. {_UNREADABLE.remedy}"
        raise ProviderError(message, passing=_UNREADABLE.passing) from error
    # The adapter raises NotImplementedError if a provider lacks a feature, such as a kind of content.
    except (ai.UserError, NotImplementedError) as error:
        message = f"{model} cannot be asked this: {_short(str(error))}. Ask another model, or leave it out."
        raise ModelError(message, refused=True) from error


def incomplete_reply(model: str) -> ProviderError:
    """Return the error for a stream that was closed regularly before the reply was complete."""
    return ProviderError(f"{model} broke off in the middle of a reply. Ask again.", passing=True)


def _as_ours(model: str, error: ai.ModelAPIError, messages: Sequence[Message]) -> ProviderError:
    kind = next(kind for fault, kind in _KINDS if isinstance(error, fault))
    status = error.status_code if isinstance(error, ai.ModelHTTPError) else None
    number = f" ({status})" if status is not None else ""
    remedy = kind.remedy
    if error.retry_after is not None and kind.passing:
        remedy = f"Ask again in {error.retry_after:g} s."
    fields = _fields(error)
    message = _short(fields["message"] or error.message)
    refused = kind is _REFUSED or status == TOO_LARGE
    said = [fields["param"], fields["message"], error.message] if refused else []
    return ProviderError(
        f"{model} {kind.happened}{number}: {message}. {remedy}",
        status=status,
        retry_after=error.retry_after,
        passing=kind.passing,
        refused=refused,
        at=refused_place(error.__cause__, said, messages) if error.__cause__ else None,
    )


def _fields(error: ai.ModelAPIError) -> Mapping[str, str]:
    """Return the message and the parameter in the response's body, from the usual place, or empty."""
    given: object = error.body
    body = cast("Mapping[str, object]", given if isinstance(given, dict) else {})
    inner = body.get("error", body)
    found = {"message": inner} if isinstance(inner, str) else inner
    fields = cast("Mapping[str, object]", found if isinstance(found, dict) else {})
    return {name: str(fields.get(name) or "") for name in ("message", "param")}


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
