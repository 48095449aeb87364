"""Names of tools and ids of tool uses that every provider accepts.

The translation is a function of the name alone: a name in a list of tools and the same name in an
old conversation become the same, and a name that is accepted already is not changed.
"""

from __future__ import annotations

import hashlib
import re

LONGEST = 64
_ACCEPTED = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


def wire_name(name: str) -> str:
    """Return ``name`` if it is 1 to 64 letters, digits, ``_`` and ``-``, else one made of it.

    The name made of it ends in a digest, so that ``a.b`` and ``a/b`` remain different.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    # Names come from JSON, in which half a surrogate pair is legal; UTF-8 has no bytes for it.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHER.sub('_', name)[: LONGEST - _DIGEST - 1]}_{digest}"
