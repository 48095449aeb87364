"""Fingerprints: short digests that pin what was asked, and JSON with one spelling for equal values.

A replay compares the fingerprint of what it asks with the recorded one. They guard against
accidents, not against attacks: a journal leaves the server sealed.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from hashlib import blake2s
from typing import Any

from pydantic import JsonValue

LENGTH = 6
"""Characters in a fingerprint."""

canonical: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""JSON with one spelling for equal values. ASCII, so that lone surrogates do not raise."""

_PLAIN = frozenset({int, bool, type(None)})


def fingerprint(*parts: JsonValue) -> str:
    """Return ``LENGTH`` characters that pin ``parts``: 36 bits of BLAKE2s."""
    # Most parts are texts and numbers, which are spelled more quickly than JSON is.
    spelled = ""
    for part in parts:
        kind = type(part)
        if kind is str:
            spelled += f"{len(part)}:{part}"  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it is a text
        elif kind in _PLAIN:
            spelled += f"{part},"
        else:
            spelled += f"{canonical(part)};"
    digest = blake2s(spelled.encode("utf-8", "surrogatepass")).digest()
    return binascii.b2a_base64(digest[:5])[:LENGTH].decode()
