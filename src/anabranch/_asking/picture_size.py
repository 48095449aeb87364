"""The size of a picture in pixels, read from the head of its file."""

from __future__ import annotations

from typing import Literal

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8"
_MARK = 0xFF
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of frames; those between them are of tables, and one is reserved."""


def picture_size(head: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG, JPEG, GIF or WebP, ``None`` if ``head`` does not say.

    Args:
        head: the file, or its beginning.
    """
    if head.startswith(_PNG):
        return _pair(head, 16, 4, "big")
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair(head, 6, 2, "little")
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp(head)
    return _jpeg(head) if head.startswith(_JPEG) else None


def _pair(
    head: bytes, start: int, length: int, order: Literal["big", "little"]
) -> tuple[int, int] | None:
    middle, end = start + length, start + 2 * length
    if len(head) < end:
        return None
    return int.from_bytes(head[start:middle], order), int.from_bytes(head[middle:end], order)


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 " if (pair := _pair(head, 26, 2, "little")) is not None:
            return pair[0] & 0x3FFF, pair[1] & 0x3FFF  # above are two bits of a scale
        case b"VP8L" if (pair := _pair(head, 21, 2, "little")) is not None:
            bits = pair[0] | pair[1] << 16
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X" if (pair := _pair(head, 24, 3, "little")) is not None:
            return pair[0] + 1, pair[1] + 1
        case _:
            return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    """Return the size in the first segment that begins a frame."""
    at = len(_JPEG)
    while at + 4 <= len(head) and head[at] == _MARK:
        marker = head[at + 1]
        if marker == _MARK:  # a filling byte
            at += 1
        elif marker in _FRAMES:
            pair = _pair(head, at + 5, 2, "big")
            return None if pair is None else (pair[1], pair[0])
        else:
            at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None
