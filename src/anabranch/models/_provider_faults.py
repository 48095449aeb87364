"""Maps pydantic-ai's exceptions to ``ModelError`` and ``ProviderError``, with the refused block.

The provider numbers the items of its own request, so the block is found there by its content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from pydantic_ai import exceptions as ai

from anabranch.messages import (
    AudioBlock,
    Block,
    ImageBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from anabranch.models._protocol import ModelError, ProviderError

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
"""The HTTP status for a request with too many bytes, for example with large images."""
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
        _Kind(
            "cannot take so long a conversation",
            "Shorten the conversation, or continue from an earlier node.",
        ),
    ),
    (ai.ModelAuthenticationError, _Kind("refused the key", "Check the provider's key.")),
    (ai.ModelNotFoundError, _Kind("is not known there", "Check the model's name.")),
    (ai.ModelRequestRejectedError, _REFUSED),
    (ai.ModelAPIError, _UNREADABLE),
)
"""The first match counts, so a subclass comes before its bases."""


@contextmanager
def mapped_errors(model: str, messages: Sequence[Message] = ()) -> Generator[None]:
    try:
        yield
    except ai.ModelAPIError as error:
        raise _as_ours(model, error, messages) from error
    except ai.UnexpectedModelBehavior as error:
        message = f"{model} {_UNREADABLE.happened}: {_short(error.message)}. {_UNREADABLE.remedy}"
        raise ProviderError(message, passing=_UNREADABLE.passing) from error
    # The adapter raises NotImplementedError if a provider lacks a feature, such as a kind of content.
    except (ai.UserError, NotImplementedError) as error:
        message = (
            f"{model} does not support this request: {_short(str(error))}. Use another model, or"
            " leave that part out."
        )
        raise ModelError(message, refused=True) from error


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
        at=_refused_place(error.__cause__, said, messages) if error.__cause__ else None,
    )


def _fields(error: ai.ModelAPIError) -> Mapping[str, str]:
    given: object = error.body
    body = cast("Mapping[str, object]", given if isinstance(given, dict) else {})
    inner = body.get("error", body)
    found = {"message": inner} if isinstance(inner, str) else inner
    fields = cast("Mapping[str, object]", found if isinstance(found, dict) else {})
    return {name: str(fields.get(name) or "") for name in ("message", "param")}


def _short(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


_PATH: Final = re.compile(r"\b(?:messages|input)(?:\.?\[?\d+\]?|\.[a-z_]\w*)+")
"""``messages.1.content.0.image`` (Anthropic), ``input[1].content[0]``, ``messages.[1].content`` (OpenAI)."""
_STEP: Final = re.compile(r"\w+")


def _refused_place(
    error: BaseException, said: Sequence[str], messages: Sequence[Message]
) -> tuple[int, ...] | None:
    """Return the numbers of the message and block that the error names, or ``None``."""
    body = _body(error)
    for path in (found[0] for text in said for found in _PATH.finditer(text)):
        for item in reversed(_items(body, _STEP.findall(path))):
            if places := _places(item, messages):
                return places[-1]
    return None


def _body(error: BaseException) -> object:
    try:
        content = getattr(getattr(error, "request", None), "content", b"")
        return json.loads(content) if isinstance(content, bytes) else None
    except (RuntimeError, ValueError):  # a stream that was not read, or no JSON
        return None


def _items(body: object, steps: Sequence[str]) -> list[object]:
    items: list[object] = []
    found = body
    for step in steps:
        fields = cast("Mapping[str, object]", found if isinstance(found, dict) else {})
        members = cast("Sequence[object]", found if isinstance(found, list) else ())
        if step.isdecimal() and int(step) < len(members):
            found = members[int(step)]
            items.append(found)
        elif step in fields:
            found = fields[step]
        elif fields.get("type") != step:
            break  # Anthropic names the type of a block as well
    return items


def _places(item: object, messages: Sequence[Message]) -> list[tuple[int, ...]]:
    texts = [*_texts(item)]
    whole, joined = set(texts), "\n".join(texts)
    media: list[tuple[int, ...]] = []
    reasoning: list[tuple[int, ...]] = []
    said: list[tuple[int, ...]] = []
    for place, block in _blocks(messages):
        if isinstance(block, ImageBlock | AudioBlock):
            media += [place] if block.data in joined else []
        elif isinstance(block, TextBlock | ToolUseBlock):
            signed = [] if block.reasoning is None else [*_texts(block.reasoning.data)]
            reasoning += [(*place, 0)] if not whole.isdisjoint(signed) else []
            said += [place] if isinstance(block, TextBlock) and block.text in whole else []
    return media or reasoning or said


def _blocks(messages: Sequence[Message]) -> Iterator[tuple[tuple[int, ...], Block]]:
    for number, message in enumerate(messages):
        for at, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                yield from (((number, at, n), part) for n, part in enumerate(block.content))
            else:
                yield (number, at), block


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in cast("Mapping[str, object]", value).items():
            if key not in ("type", "role"):
                yield from _texts(held)
    elif isinstance(value, list):
        for held in cast("list[object]", value):
            yield from _texts(held)
