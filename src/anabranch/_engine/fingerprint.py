"""Fingerprints: short digests that pin what was asked, and JSON with one spelling for equal values.

A replay compares the fingerprint of what it asks with the recorded one. They guard against
accidents, not against attacks: a journal leaves the server sealed.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from pydantic import JsonValue

__all__ = ["LENGTH", "canonical", "fingerprint"]

LENGTH = 6
"""Characters in a fingerprint."""

canonical: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
"""JSON with one spelling for equal values. ASCII, so that lone surrogates do not raise."""

_PLAIN = frozenset({str, int, bool, type(None)})


def fingerprint(*parts: JsonValue) -> str:
    """Return ``LENGTH`` characters that pin ``parts``: 36 bits of BLAKE2b."""
    # Most parts are texts and numbers, for which ascii() is as canonical as JSON, and quicker.
    for part in parts:
        if type(part) not in _PLAIN:
            spelled = canonical(parts)
            break
    else:
        spelled = ascii(parts)
    return binascii.b2a_base64(blake2b(spelled.encode()).digest()[:5])[:LENGTH].decode()
