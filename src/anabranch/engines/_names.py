"""Names as an engine can take them: no text that names a call can break one."""

from __future__ import annotations

import hashlib
from urllib.parse import quote

LONGEST, SHOWN = 500, 400
"""Characters of a name that stays whole; and those that stay of one that is longer."""


def encoded(name: str) -> str:
    """Return a name in letters, digits, dots and hyphens; different names stay different."""
    plain = quote(name, safe="", errors="surrogatepass")
    for also in ".~_":
        plain = plain.replace(also, f"%{ord(also):X}")
    return plain.replace("%", ".")


def shortened(name: str) -> str:
    """Return :func:`encoded`, with a digest for the rest where it would be too long for a key."""
    plain = encoded(name)
    if len(plain) <= LONGEST:
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()
    return f"{plain[:SHOWN]}.x{digest}"  # no other name has an x there
