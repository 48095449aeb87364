"""The words in which a question is asked again, and the fields that they name.

They are all that a client learns of an answer that did not fit, by whatever protocol. A terminal
reads from them what to ask for again.
"""

from __future__ import annotations

from collections.abc import Container

REASON = "\n\n(The last answer did not fit: "
END = ".)"


def asked_again(message: str, reason: str) -> str:
    """Return ``message`` with the reason why its last answer did not fit."""
    return f"{message}{REASON}{reason}{END}"


def fields_asked_again(message: str, names: Container[str]) -> tuple[str, set[str]]:
    """Return the question that ``message`` asks, and those of ``names`` that its reason is about.

    There are none if the question is asked for the first time, or for a reason of no field's own.
    """
    asked, _, reason = message.removesuffix(END).partition(REASON)
    parts = (problem.partition(":")[0].partition(".")[0] for problem in reason.split("; "))
    return asked if reason else message, {name for name in parts if name in names}
