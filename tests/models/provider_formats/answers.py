"""An answer, before it has a format."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def json(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class Say:
    """A reply.

    Attributes:
        text: what is said, before the calls.
        calls: the tools to be called.
        reasoning: what is thought, before the text; with a signature, except in chat completions.
        reason: why it stops, as the interface has it; by itself if not given.
        cached: how many of the 11 tokens of input were read from a cache, and written to it.
        cut: if it is streamed, only so many events of it are sent.
        end: what follows on a cut: the connection breaks, or closes politely, or stays silent, or
            an error arrives instead of the rest, or the rest itself when the test says so.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    reason: str | None = None
    cached: tuple[int, int] = (0, 0)
    cut: int | None = None
    end: Literal["broken", "closed", "silent", "overloaded", "held"] = "broken"


def event(content: Mapping[str, Any], name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content)}\n\n".encode()


def pieces(text: str, size: int = 4) -> Iterator[str]:
    """Cut a text as a stream does: anywhere."""
    return (text[start : start + size] for start in range(0, len(text), size))


def signed(reasoning: str) -> str:
    """Return the signature of what is thought, which comes back with it."""
    return f"signature of {reasoning}"
