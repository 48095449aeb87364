"""The idempotency key of a first request: in its ``_meta``, or in the HTTP header.

The header is that of draft-ietf-httpapi-idempotency-key-header, whose value is in quotes; many
services take it without, and so does this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext

from anabranch.errors import IdempotencyKeyError

KEY_META: Final = "anabranch/idempotency-key"
"""Key in the ``_meta`` of a request."""

TAKES_KEY_META: Final = "anabranch/takes-idempotency-key"
"""Key in the ``_meta`` of a tool that repeats the reply of a keyed request.

It is not the request's, since some clients send a tool's ``_meta`` along with each call of it.
"""

HEADER = "Idempotency-Key"

_KEY = re.compile("[!-~]{1,255}")


def given_key(context: ServerRequestContext[Any, Any]) -> str:
    """Return the key of a request, empty if it has none.

    Raises:
        IdempotencyKeyError: it is not one, or header and ``_meta`` differ.
    """
    headers: Mapping[str, str] = getattr(context.request, "headers", None) or {}
    meta = cast("Mapping[str, object]", context.meta or {})
    given: list[object] = []
    if (header := headers.get(HEADER)) is not None:
        is_quoted = len(header) > 1 and header[0] == header[-1] == '"'
        given.append(header[1:-1] if is_quoted else header)
    if KEY_META in meta:
        given.append(meta[KEY_META])
    for key in given:
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            raise IdempotencyKeyError(
                "it has to be 1 to 255 visible ASCII characters, without spaces"
            )
        if key != given[0]:
            raise IdempotencyKeyError(
                "the one in the header differs from the one in _meta; give one"
            )
    return str(given[0]) if given else ""
