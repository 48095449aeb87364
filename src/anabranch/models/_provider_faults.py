"""The mapping from pydantic-ai's exceptions to ``ModelError`` and ``ProviderError``.

Each kind of exception has a sentence on what happened and one on what to do. The provider's own
message is quoted, shortened; the exception of its client is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from pydantic_ai import exceptions as ai

from anabranch.models._model_errors import ModelError, ProviderError

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
"""The status for a request with too many bytes, as of large images."""
_PLACE = re.compile(r"\bmessages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?(?=[.: ])")
"""The place that Anthropic's errors name; the indices of OpenAI's are of other lists than ours."""
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
"""The first that matches is used: a subclass comes before its bases."""


@contextmanager
def mapped_errors(model: str) -> Generator[None]:
    """Map the exceptions of a provider's client to ``ProviderError``, misuse to ``ModelError``."""
    try:
        yield
    except ai.ModelAPIError as error:
        raise _as_ours(model, error) from error
    except ai.UnexpectedModelBehavior as error:
        message = f"{model} {_UNREADABLE.happened}: {_short(error.message)}. {_UNREADABLE.remedy}"
        raise ProviderError(message, passing=_UNREADABLE.passing) from error
    # The adapter raises the second for what a provider does not have, such as a kind of content.
    except (ai.UserError, NotImplementedError) as error:
        message = f"{model} cannot be asked this: {_short(str(error))}. Ask another model, or leave it out."
        raise ModelError(message, refused=True) from error


def incomplete_reply(model: str) -> ProviderError:
    """Return the error for a stream that was closed in order, but before the reply was complete."""
    return ProviderError(f"{model} broke off in the middle of a reply. Ask again.", passing=True)


def _as_ours(model: str, error: ai.ModelAPIError) -> ProviderError:
    kind = next(kind for fault, kind in _KINDS if isinstance(error, fault))
    status = error.status_code if isinstance(error, ai.ModelHTTPError) else None
    number = f" ({status})" if status is not None else ""
    remedy = kind.remedy
    if error.retry_after is not None and kind.passing:
        remedy = f"Ask again in {error.retry_after:g} s."
    message = _provider_message(error)
    named = _PLACE.search(message)
    return ProviderError(
        f"{model} {kind.happened}{number}: {message}. {remedy}",
        status=status,
        retry_after=error.retry_after,
        passing=kind.passing,
        refused=kind is _REFUSED or status == TOO_LARGE,
        at=tuple(int(each) for each in named.groups() if each) if named else None,
    )


def _provider_message(error: ai.ModelAPIError) -> str:
    """Return the message in the response's body, in the usual place; else the client's."""
    body = error.body
    if isinstance(body, dict):
        fields = cast("Mapping[str, object]", body)
        inner = fields.get("error", fields)
        if isinstance(inner, dict):
            inner = cast("Mapping[str, object]", inner).get("message")
        if isinstance(inner, str) and inner:
            return _short(inner)
    return _short(error.message)


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
