"""Replaces or reads the random id in the message of an unexpected error."""

import re

_ID = re.compile(r"\(error ([0-9a-f]{8})\)")


def with_any_id(text: str) -> str:
    """Return the text with ``ID`` in place of an error's id, if there is one."""
    return _ID.sub("(error ID)", text)


def id_in(text: str) -> str:
    """Return the id in a message; the message must have one."""
    found = _ID.search(text)
    assert found is not None, text
    return found[1]
