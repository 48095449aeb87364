"""Makes the blocks that a model reads from the value that a tool returned.

The bytes of a file tell its type, since the declared type may be wrong. A file that is too large,
or of no known type, becomes a line with address, type and size.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import to_json, to_jsonable_python

from anabranch._text import AUDIO, IMAGES, encodable, media_type, read_base64, read_text, size_of
from anabranch.messages import AudioBlock, DocumentBlock, ImageBlock, ResultBlock, TextBlock
from anabranch.tree import MOST_BYTES


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
