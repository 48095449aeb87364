"""Reads the type of a file from its first bytes: servers declare a JPEG as PNG, providers refuse that."""

from __future__ import annotations

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types of images that providers take."""
AUDIO = frozenset({"audio/wav", "audio/mpeg", "audio/ogg", "audio/flac"})
"""The types of sound that are recognised."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF-", "application/pdf"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_THOUSAND = 1_000
_MPEG_LAYERS = {0xF2, 0xF3, 0xFA, 0xFB}


def media_type(data: bytes) -> str | None:
    """Return the type of the file that ``data`` is, ``None`` for one that is not recognised."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[:1] == b"\xff" and len(data) > 1 and data[1] in _MPEG_LAYERS:
        return "audio/mpeg"
    return next((kind for begins, kind in _BEGINNINGS if data.startswith(begins)), None)


def size_of(data: bytes) -> str:
    """Return the size of ``data`` for a reader."""
    number, units = float(len(data)), ["bytes", "kB", "MB"]
    while number >= _THOUSAND and len(units) > 1:
        number, units = number / _THOUSAND, units[1:]
    return f"{number:.0f} {units[0]}"
