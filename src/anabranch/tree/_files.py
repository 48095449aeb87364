"""The files of a conversation: the store keeps their bytes, and blocks refer to them by digest.

Each thread holds its own files, so a digest is useless in another thread. A file that a tool returns
becomes a block of its type. If the file is too large, or of no known type, it becomes a line with
address, type and size.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any, TypeVar, cast

from pydantic_core import to_json, to_jsonable_python

from anabranch._text import (
    AUDIO,
    IMAGES,
    PDF,
    TEXT,
    encodable,
    file_type,
    is_other_text,
    media_type,
    read_base64,
    read_text,
    size_of,
)
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
    name = block.name if isinstance(block, DocumentBlock) else ""
    reference = _reference(data, block.mime_type, name)
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


def file_line(block: FileBlock | _Media) -> str:
    """Return a line with name, type and size in place of a file."""
    if not isinstance(block, FileBlock):
        name = block.name if isinstance(block, DocumentBlock) else ""
        block = _reference(base64.b64decode(block.data), block.mime_type, name)
    what = {"image": "an image", "audio": "a sound", "document": "a file"}[block.kind]
    size = size_of(block.size) if block.size or not block.url else ""  # a URL has no known size
    return f"({what}: {', '.join(filter(None, [block.name, block.url, block.mime_type, size]))})"


def file_lines(blocks: Iterable[Block]) -> list[str]:
    media = [block for block in blocks if isinstance(block, _Media | FileBlock)]
    return [file_line(each) if isinstance(each, FileBlock) else f"({each.type})" for each in media]


def result_blocks(value: object) -> tuple[ResultBlock, ...]:
    """Return the blocks that a model reads of the value that a tool returned."""
    whole: Any = value
    parts: Sequence[object] = whole if type(whole) in (list, tuple) else [whole]
    blocks = [_media(part) for part in parts]
    if not any(blocks):
        return (TextBlock(text=_text(whole)),)
    both = zip(blocks, parts, strict=True)
    return tuple(block or TextBlock(text=_text(part)) for block, part in both)


def _media(part: Any) -> ResultBlock | None:  # noqa: ANN401 - any value of a tool
    for name in ("to_image_content", "to_audio_content"):  # the helpers of the SDK and FastMCP
        if callable(convert := getattr(part, name, None)):
            return _media(convert())
    if isinstance(part, bytes | bytearray):
        return _file(bytes(part), "", "")
    made: Any = part
    fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    kind: object = fields.get("type") if fields else getattr(made, "type", None)
    if kind not in ("image", "audio", "document", "resource"):
        return None
    read: Any = to_jsonable_python(part, by_alias=True)
    if kind == "resource":
        read = read.get("resource")
    fields = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    encoded = fields.get("blob" if kind == "resource" else "data")
    if not isinstance(encoded, str):
        return None
    declared = str(fields.get("mimeType") or fields.get("mime_type") or "")
    uri = str(fields.get("uri") or fields.get("name") or "")
    try:
        data = read_base64(encoded)
    except ValueError:
        return TextBlock(text=f"({_named(uri, declared)}: its data is no base64)")
    return _file(data, declared, uri)


def _file(data: bytes, declared: str, uri: str) -> ResultBlock:
    read, encoded = media_type(data), base64.b64encode(data).decode()
    kind = read or declared.partition(";")[0].strip().lower()
    if read is not None and len(data) <= MOST_BYTES:
        if read in IMAGES:
            return ImageBlock(data=encoded, mime_type=read)
        if read in AUDIO:
            return AudioBlock(data=encoded, mime_type=read)
        return DocumentBlock(data=encoded, mime_type=read, name=uri)
    if not kind.startswith(("image/", "audio/")):
        text = _text_in(data, kind, declared)
        if text is not None:
            return TextBlock(text=text)
    return TextBlock(text=f"({_named(uri, kind)}, {size_of(data)})")


def _named(uri: str, kind: str) -> str:
    names = {"image": "an image", "audio": "a sound"}
    what = names.get(kind.partition("/")[0], "a file")
    return f"{what}: " + ", ".join(each for each in (uri, kind or "of unknown type") if each)


def _text_in(data: bytes, kind: str, declared: str) -> str | None:
    given = declared.lower().partition("charset=")[2].partition(";")[0].strip(" \"'")
    is_text = kind.startswith("text/") or kind.endswith(("json", "xml", "yaml", "javascript"))
    if not is_text and kind not in ("", "application/octet-stream"):
        return None
    text = read_text(data, given or "utf-8")
    return data.decode("utf-8", "replace") if text is None and is_text else text


def _text(value: object) -> str:
    if isinstance(value, TextBlock):
        return value.text
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(encodable(value), indent=2, by_alias=True).decode()
