"""Names and ids that every provider takes.

Owns the one translation from any name to one that Anthropic's and OpenAI's interfaces accept. It
is a function of the name alone: wherever a name is met (in the list of tools, in a conversation of
last year), the same comes out, and a name that is fine already stays.
"""

from __future__ import annotations

import hashlib
import re

__all__ = ["LONGEST", "wire_name"]

LONGEST = 64
_FINE = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


def wire_name(name: str) -> str:
    """Return ``name`` if it is 1 to 64 letters, digits, ``_`` and ``-``, else one like it.

    That ends in a digest of ``name``, so that ``a.b`` and ``a/b`` stay two names.
    """
    if _FINE.fullmatch(name):
        return name
    # Names come out of JSON, where half a surrogate pair is a legal text and UTF-8 has no bytes.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHER.sub('_', name)[: LONGEST - _DIGEST - 1]}_{digest}"
