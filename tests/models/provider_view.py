"""Reads the first block of a request in the words of the page *What is accepted*."""

from typing import Any

from pydantic_ai import messages as ai

from anabranch.messages import SampleRequest
from anabranch.models._translation import TakenFiles, to_provider

TAKEN = TakenFiles(
    sounds=frozenset({"audio/wav"}),
    documents=frozenset({"application/pdf"}),
    urls=frozenset({"image"}),
)
"""The file types that the page's provider accepts."""


def read_in(request: SampleRequest) -> str:
    """Return the first block of the last message that the provider receives, in the words of the page."""
    part = to_provider(request, taken=TAKEN)[-1].parts[0]
    assert isinstance(part, ai.UserPromptPart | ai.ToolReturnPart)
    content: Any = part.content
    first = content if isinstance(content, str) else content[0]
    if isinstance(first, ai.BinaryContent):
        return f"a file of type `{first.media_type}`"
    return " ".join(first.split()) if isinstance(first, str) else "the file at the address"
