"""Makes the blocks that a model reads from the value that a tool returned, and limits remote results.

The bytes of a file tell its type, since the declared type may be wrong. A file that is too large,
or of no known type, becomes a line with address, type and size.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import to_json, to_jsonable_python

from anabranch._text import AUDIO, IMAGES, encodable, media_type, read_base64, read_text, size_of
from anabranch.messages import (
    AudioBlock,
    DocumentBlock,
    FileBlock,
    ImageBlock,
    ResultBlock,
    Shape,
    TextBlock,
)
from anabranch.tree import MOST_BYTES, file_line

BLOCKS: Final = 1_000
"""Maximum texts and images of a result: each is an object of the stored node."""


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """Limits on one call of a remote server's tool.

    A result over the limit is refused rather than shortened: the model reads the refusal, and may
    ask for less.

    Attributes:
        max_result: characters of a result; an image counts as Base64 text.
        max_question: characters of questions that the server asks together, with the server's
            state.
        max_questions: questions that wait for the user at the same time.
        max_samples: requests to the agent's model.
        max_notices: log messages and progress messages; further messages are dropped.
    """

    max_result: int = 8 * 1024 * 1024
    max_question: int = 1024 * 1024
    max_questions: int = 100
    max_samples: int = 100
    max_notices: int = 1_000


class RemoteResult(Shape):
    blocks: tuple[ResultBlock, ...]
    is_error: bool = False

    def within(self, limits: RemoteLimits, tool: str) -> RemoteResult:
        """Return this result, with names for large files; if it is still too large, return an error."""
        blocks = tuple(_line_if_large(limits, block) for block in self.blocks)
        sizes = [_size(block) for block in blocks]
        if sum(sizes) <= limits.max_result and len(sizes) <= BLOCKS:
            return RemoteResult(blocks=blocks, is_error=self.is_error)
        text = (
            f"The result of {tool!r} is too large, and is left out: it has {sum(sizes):,} of at most"
            f" {limits.max_result:,} characters, and {len(sizes):,} of at most {BLOCKS:,} parts. Call"
            " it so that it returns less."
        )
        return RemoteResult(blocks=(TextBlock(text=text),), is_error=True)


def _line_if_large(limits: RemoteLimits, block: ResultBlock) -> ResultBlock:
    if not isinstance(block, AudioBlock | DocumentBlock) or _size(block) <= limits.max_result:
        return block
    name = block.name if isinstance(block, DocumentBlock) else ""
    size = len(block.data) * 3 // 4
    return TextBlock(text=file_line(FileBlock(mime_type=block.mime_type, size=size, name=name)))


def _size(block: ResultBlock) -> int:
    if isinstance(block, FileBlock):
        return block.size
    return len(block.text if isinstance(block, TextBlock) else block.data)


def result_blocks(value: object) -> tuple[ResultBlock, ...]:
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
