"""The blocks of a tool result that a model is sent, made of what the tool returned.

Images remain what they are, in the classes of this library and of MCP; a resource that holds one is
that image. Everything else is text; a sound is named, since providers take none in a tool's result.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, cast

from pydantic_core import to_json, to_jsonable_python

from anabranch._encodable import encodable
from anabranch.messages import ImageBlock, ResultBlock, TextBlock

__all__ = ["result_blocks"]


def result_blocks(value: object) -> tuple[ResultBlock, ...]:
    """Return the blocks of a result, at least one."""
    whole: Any = value
    parts: Sequence[object] = whole if type(whole) in (list, tuple) else [whole]
    blocks = [_media(part) for part in parts]
    if not any(blocks):
        return (TextBlock(text=_text(whole)),)
    both = zip(blocks, parts, strict=True)
    return tuple(block or TextBlock(text=_text(part)) for block, part in both)


def _media(part: Any) -> ImageBlock | TextBlock | None:  # noqa: ANN401 - whatever a tool returns
    """Return the image that ``part`` is, or the name of a sound; ``None`` if it is neither."""
    for name in ("to_image_content", "to_audio_content"):  # the helpers of the SDK and FastMCP
        if callable(convert := getattr(part, name, None)):
            return _media(convert())
    made: Any = part
    fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
    kind: object = fields.get("type") if fields else getattr(made, "type", None)
    if kind not in ("image", "audio", "resource"):
        return None
    try:
        read = to_jsonable_python(part, by_alias=True)
        if kind == "resource":
            read = read["resource"] | {"data": read["resource"]["blob"]}
        mime_type = read.get("mimeType") or read["mime_type"]
        base64.b64decode(read["data"], validate=True)
    except (KeyError, TypeError, AttributeError, ValueError, binascii.Error):
        return None
    match str(mime_type).partition("/")[0]:
        case "image":
            return ImageBlock(data=read["data"], mime_type=mime_type)
        case "audio":
            return TextBlock(text=f"(a sound: {mime_type})")
        case _:
            return None


def _text(value: object) -> str:
    if isinstance(value, TextBlock):
        return value.text
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(encodable(value), indent=2, by_alias=True).decode()
