"""The rule for names that an author gives to questions, steps and branches.

The ids of steps consist of these names and of the marks ``/``, ``~`` and ``#``; Python writes
nameless functions in angle brackets. A name that contains a mark could be confused with a generated
id.
"""

from __future__ import annotations

from anabranch._text.encodable import encodable

MARKS = frozenset("/~#<>")


def checked_name(name: str, what: str = "name") -> str:
    """Return ``name``; the error calls it a ``what``: a name or a key.

    Raises:
        ValueError: if ``name`` is empty, or contains one of :data:`MARKS` or a lone surrogate.
    """
    if not name or MARKS & set(name):
        raise ValueError(f"A {what} must not be empty or contain any of / ~ # < >, got {name!r}")
    if encodable(name) != name:
        raise ValueError(f"A {what} must be Unicode text, without lone surrogates, got {name!r}")
    return name
