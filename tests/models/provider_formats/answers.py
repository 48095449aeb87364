"""An answer of a provider, independent of the wire format."""

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
        text: text before the calls.
        calls: calls of tools.
        reasoning: reasoning before the text; signed, except in chat completions.
        reason: stop reason in the words of the interface. Default: derived from the reply.
        cached: how many of the 11 input tokens were read from a cache, and written to it.
        cut: maximum number of events of a streamed reply.
        end: what follows the cut: a broken connection, an orderly close, silence, an error, or the
            rest of the reply once the test allows it.
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
    """Cut a text into pieces at arbitrary places, as a stream does."""
    return (text[start : start + size] for start in range(0, len(text), size))


def signed(reasoning: str) -> str:
    """Return the signature of a reasoning, which the client must send back."""
    return f"signature of {reasoning}"
