"""Converts images, sounds and documents to parts of a provider's request, or to text.

A URL is sent only to a provider that fetches it: this process must not fetch a user's address.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic_ai import messages as ai
from pydantic_ai.models import Model

from anabranch._text import AUDIO, IMAGES, media_type, size_of
from anabranch.messages import AudioBlock, DocumentBlock, FileBlock, ImageBlock
from anabranch.tree import file_line

Media: TypeAlias = ImageBlock | AudioBlock | DocumentBlock | FileBlock

_ANTHROPIC_URLS: Final = frozenset({"image", "application/pdf"})
_IMAGE_URLS: Final = frozenset({"image"})
_URLS: Final[Mapping[str, frozenset[str]]] = {
    "anthropic": _ANTHROPIC_URLS,
    "openai": _IMAGE_URLS,
    "groq": _IMAGE_URLS,
    "mistral": _IMAGE_URLS,
}
"""Kinds of files whose URLs each provider fetches, as pydantic-ai's adapters send them."""

_RESULT_DOCUMENTS: Final = frozenset(
    {"anthropic", "openai", "google", "google-cloud", "bedrock", "mistral"}
)
"""Providers that take documents in results of tools, or after them: pydantic-ai moves the files."""

_COMMON_SOUNDS: Final = frozenset({"audio/wav", "audio/mpeg"})
_SOUNDS: Final[Mapping[str, frozenset[str]]] = {"google": AUDIO, "google-cloud": AUDIO}
"""Types of sounds that providers take; all others take at most those of OpenAI's interface."""


@dataclass(frozen=True)
class TakenFiles:
    """The kinds of files that a model accepts; ``None`` stands for all types."""

    images: bool = True
    sounds: frozenset[str] | None = None
    documents: frozenset[str] | None = None
    result_documents: bool = True
    urls: frozenset[str] = frozenset()

    def has(self, mime_type: str) -> bool:
        match mime_type.partition("/")[0]:
            case "image":
                return self.images
            case "audio":
                return self.sounds is None or mime_type in self.sounds
            case "text":
                return True
            case _:
                return self.documents is None or mime_type in self.documents


ANY: Final = TakenFiles()
"""The files of a model that takes all files, and whose provider fetches no URL."""


def taken_files(model: Model[Any]) -> TakenFiles:
    profile = model.profile
    documents = profile.get("supported_document_media_types")
    sounds = _SOUNDS.get(model.system, _COMMON_SOUNDS)
    return TakenFiles(
        profile.get("supports_image_input", True),
        sounds if profile.get("supports_audio_file_input", True) else frozenset(),
        documents if profile.get("supports_document_input", True) else frozenset(),
        model.system in _RESULT_DOCUMENTS,
        _URLS.get(model.system, frozenset()),
    )


def file_part(
    block: Media, taken: TakenFiles = ANY, *, in_result: bool = False
) -> ai.BinaryContent | ai.ImageUrl | ai.DocumentUrl | str:
    if isinstance(block, FileBlock):
        return _address(block, taken) or file_line(block)
    data = base64.b64decode(block.data)
    read = media_type(data)
    match block:
        case ImageBlock():
            what, is_taken, kind = "an image:", taken.images and read in IMAGES, read
        case AudioBlock():
            what, kind = "a sound:", read
            is_taken = taken.has(read or block.mime_type)
        case DocumentBlock():
            what, kind = f"a file: {block.name}," if block.name else "a file:", block.mime_type
            is_taken = taken.has(kind) and (taken.result_documents or not in_result)
    if is_taken:
        return ai.BinaryContent(data, media_type=kind or block.mime_type)
    return f"({what} {block.mime_type}, {size_of(data)})"


def _address(block: FileBlock, taken: TakenFiles) -> ai.ImageUrl | ai.DocumentUrl | None:
    if block.url is None:
        return None
    if block.kind == "image" and taken.images and "image" in taken.urls:
        return ai.ImageUrl(block.url)
    if block.mime_type in taken.urls:
        return ai.DocumentUrl(block.url, media_type=block.mime_type)
    return None
