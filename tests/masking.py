"""Messages of unexpected errors, whose ids differ from one error to the next."""

import re

_ID = re.compile(r"\(error ([0-9a-f]{8})\)")


def with_any_id(text: str) -> str:
    """Return the text with ``ID`` in place of the id of an error, if it has one."""
    return _ID.sub("(error ID)", text)


def id_in(text: str) -> str:
    """Return the id in a message, which must have one."""
    found = _ID.search(text)
    assert found is not None, text
    return found[1]
