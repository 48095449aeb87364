"""The files of a conversation: the store keeps their bytes, and blocks refer to them by digest.

Each thread holds its own files, so a digest is useless in another thread.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import TypeVar, cast

from anabranch._text import AUDIO, IMAGES, PDF, TEXT, file_type, is_other_text, read_text, size_of
from anabranch.errors import ToolError
from anabranch.messages import (
    AudioBlock,
    Block,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    Message,
    ResultBlock,
    TextBlock,
    ToolResultBlock,
)
from anabranch.tree._threads import TreeStore

MOST_BYTES = 20_000_000
"""Maximum bytes of one file of a message; providers take requests of about 32 MB."""

LONGEST_NAME = 40
"""Maximum bytes of a file's name in a reference, which has at most 200."""

B = TypeVar("B", Block, ResultBlock)
_Media = ImageBlock | AudioBlock | DocumentBlock


def file_block(data: bytes, name: str = "") -> FileBlock:
    """Return the reference to a file that a user attaches; the file's bytes tell its type."""
    shown = name or "The file"
    if not data:
        raise ToolError(f"{shown} is empty. Attach another file.")
    if len(data) > MOST_BYTES:
        raise ToolError(
            f"{shown} is too large. A file has at most {size_of(MOST_BYTES)}. Attach a smaller one."
        )
    kind = file_type(data)
    if kind is None and is_other_text(data):
        raise ToolError(
            f"{shown} is a text in another encoding than UTF-8. Save the text as UTF-8, and attach"
            " the new file."
        )
    if kind not in IMAGES | AUDIO | {PDF, TEXT}:
        raise ToolError(
            f"{shown} is of a type that no model takes. Attach an image (PNG, JPEG, GIF, WebP), a"
            " sound, a PDF or a text."
        )
    return _reference(data, kind, name)


def _reference(data: bytes, kind: str, name: str) -> FileBlock:
    digest = sha256(data).hexdigest()
    return FileBlock(mime_type=kind, digest=digest, size=len(data), name=_short(name))


def _short(name: str) -> str:
    plain = "".join(each if each.isprintable() else " " for each in PurePath(name).name).strip()
    if len(plain.encode("utf-8", "replace")) <= LONGEST_NAME:
        return plain
    ending = PurePath(plain).suffix
    ending = ending if len(ending.encode("utf-8", "replace")) < LONGEST_NAME // 4 else ""
    room = LONGEST_NAME - len(f"…{ending}".encode("utf-8", "replace"))
    return f"{plain.encode('utf-8', 'replace')[:room].decode('utf-8', 'ignore')}…{ending}"


async def store_files(store: TreeStore, thread_id: str, content: Iterable[B]) -> tuple[B, ...]:
    files: dict[str, bytes] = {}
    blocks: list[B] = []
    for block in content:
        reference = _stored(block, files) if isinstance(block, _Media) else None
        blocks.append(block if reference is None else cast("B", reference))
    if files:
        await store.add_files(thread_id, files)
    return tuple(blocks)


def _stored(block: _Media, files: dict[str, bytes]) -> FileBlock | None:
    try:
        data = base64.b64decode(block.data, validate=True)
    except ValueError:
        return None
    reference = _reference(
        data, block.mime_type, block.name if isinstance(block, DocumentBlock) else ""
    )
    files[reference.digest or ""] = data
    return reference


def digests_in(contents: Iterable[Sequence[Block]]) -> set[str]:
    return {
        block.digest
        for content in contents
        for outer in content
        for block in (outer.content if outer.type == "tool_result" else (outer,))
        if block.type == "file" and block.digest is not None
    }


async def load_files(
    store: TreeStore, thread_id: str, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """Return messages with files in place of references; a missing file becomes a line."""
    digests = digests_in(message.content for message in messages)
    if not digests:
        return tuple(messages)
    files = await store.files(thread_id, digests)
    return tuple(_loaded(message, files) for message in messages)


def _loaded(message: Message, files: Mapping[str, bytes]) -> Message:
    content: list[Block] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            parts = tuple(_with_bytes(part, files) for part in block.content)
            changed = parts != block.content
            content.append(block.model_copy(update={"content": parts}) if changed else block)
        else:
            content.append(_with_bytes(block, files))
    if all(new is old for new, old in zip(content, message.content, strict=True)):
        return message
    return message.model_copy(update={"content": tuple(content)})


def _with_bytes(block: B, files: Mapping[str, bytes]) -> B | TextBlock | _Media:
    if not isinstance(block, FileBlock) or block.digest is None:
        return block
    data = files.get(block.digest)
    if data is None:
        return TextBlock(text=f"{file_line(block)[:-1]}, which is not stored here)")
    if block.mime_type == TEXT:
        return TextBlock(text=f"{block.name or 'A file'}:\n\n{read_text(data)}")
    encoded = base64.b64encode(data).decode()
    match block.kind:
        case "image":
            return ImageBlock(data=encoded, mime_type=block.mime_type)
        case "audio":
            return AudioBlock(data=encoded, mime_type=block.mime_type)
        case "document":
            return DocumentBlock(data=encoded, mime_type=block.mime_type, name=block.name)


def file_line(block: FileBlock) -> str:
    what = {"image": "an image", "audio": "a sound", "document": "a file"}[block.kind]
    size = size_of(block.size) if block.size else ""
    return f"({what}: {', '.join(filter(None, [block.name, block.url, block.mime_type, size]))})"


def file_lines(blocks: Iterable[Block]) -> list[str]:
    media = [block for block in blocks if isinstance(block, _Media | FileBlock)]
    return [file_line(each) if isinstance(each, FileBlock) else f"({each.type})" for each in media]
