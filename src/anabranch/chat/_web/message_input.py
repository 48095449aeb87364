"""Reads the user's message from an AG-UI run: its text, and its files.

A file's bytes decide its type. Providers fetch addresses, and this server never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from mimetypes import guess_type
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

from ag_ui.core import RunAgentInput, UserMessage
from ag_ui.core.types import AudioPart, DataSource, DocumentPart, FileSource, ImagePart, VideoPart
from pydantic import model_validator
from starlette.exceptions import HTTPException

from anabranch._text import read_base64
from anabranch.chat._web.run_input import Message, Place
from anabranch.messages import FileBlock
from anabranch.tree import file_block

MOST_FILES = 20
LONGEST_URL = 2_000

_FilePart: TypeAlias = ImagePart | AudioPart | VideoPart | DocumentPart
_ANY_TYPE = {"image": "image/*", "audio": "audio/*", "document": "application/octet-stream"}


class RunInput(RunAgentInput):
    """The input of a run; its files may have the form ``binary`` of earlier AG-UI versions."""

    @model_validator(mode="before")
    @classmethod
    def _parts(cls, given: Any) -> Any:  # noqa: ANN401 - any JSON
        for message in map(_object, _list(_object(given).get("messages"))):
            if parts := _list(message.get("content")):
                message["content"] = [_present_part(part) for part in parts]
        return given


def _object(given: object) -> dict[str, Any]:
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


def _list(given: object) -> Sequence[Any]:
    return cast("Sequence[Any]", given) if isinstance(given, list) else []


def _present_part(part: Any) -> Any:  # noqa: ANN401 - any JSON
    fields = _object(part)
    if fields.get("type") != "binary":
        return part
    kind = str(fields.get("mimeType")).partition("/")[0]
    place = "url" if fields.get("data") is None else "data"
    return {
        "type": kind if kind in ("image", "audio", "video") else "document",
        "source": {"type": place, "value": fields.get(place), "mimeType": fields.get("mimeType")},
        "metadata": {"filename": fields.get("filename")},
    }


def given_message(wanted: RunAgentInput, place: Place) -> tuple[Message, dict[str, bytes]]:
    """Return the user's message, and the bytes of its files by digest."""
    last = wanted.messages[-1] if wanted.messages else None
    if not isinstance(last, UserMessage):
        raise HTTPException(
            422, "A run starts with a message of the user, the result of a tool, or resume."
        )
    if isinstance(last.content, str):
        return Message(last.content, place, id=last.id), {}
    text = "\n".join(part.text for part in last.content if part.type == "text")
    parts = [part for part in last.content if part.type != "text"]
    if len(parts) > MOST_FILES:
        raise HTTPException(422, f"A message can have {MOST_FILES} files, got {len(parts)}.")
    files: dict[str, bytes] = {}
    blocks = tuple(_block(part, files) for part in parts)
    return Message(text, place, blocks, last.id), files


def _block(part: _FilePart, files: dict[str, bytes]) -> FileBlock:
    if isinstance(part, VideoPart):
        raise HTTPException(422, "Messages can have images, sounds and documents, but no video.")
    source, name = part.source, _name(part.metadata)
    if isinstance(source, FileSource):
        raise HTTPException(
            422, "Files stored at a provider are not supported. Send the file's bytes."
        )
    if not isinstance(source, DataSource) and not source.value.startswith("data:"):
        return _address(part, source.value, source.mime_type)
    try:
        data = read_base64(source.value)
    except ValueError:
        raise HTTPException(422, f"The data of {name or 'a file'} is not base64.") from None
    block = file_block(data, name)
    files[block.digest or ""] = data
    return block


def _address(part: ImagePart | AudioPart | DocumentPart, url: str, given: str | None) -> FileBlock:
    try:
        where = urlsplit(url)
    except ValueError:
        where = urlsplit("")
    if where.scheme not in ("http", "https") or not where.netloc or len(url) > LONGEST_URL:
        raise HTTPException(
            422,
            f"The address of a file must start with https:// and have at most {LONGEST_URL} characters.",
        )
    return FileBlock(mime_type=given or guess_type(where.path)[0] or _ANY_TYPE[part.type], url=url)


def _name(metadata: object) -> str:
    fields = _object(metadata)
    return next((str(fields[key]) for key in ("filename", "name") if fields.get(key)), "")
