"""The rule for names that an author gives to questions, steps and branches.

The ids of steps are built of these names and of the marks ``/``, ``~`` and ``#``; Python writes
nameless functions in angle brackets. A name with a mark in it could be read as a generated id.
"""

from __future__ import annotations

from anabranch._text.encodable import encodable

MARKS = frozenset("/~#<>")


def checked_name(name: str, what: str = "name") -> str:
    """Return ``name``; ``what`` says in the error whether it is a name or a key.

    Raises:
        ValueError: it is empty, or contains one of :data:`MARKS` or a lone surrogate.
    """
    if not name or MARKS & set(name):
        raise ValueError(f"A {what} must not be empty or contain any of / ~ # < >, got {name!r}")
    if encodable(name) != name:
        raise ValueError(f"A {what} must be Unicode text, without lone surrogates, got {name!r}")
    return name
