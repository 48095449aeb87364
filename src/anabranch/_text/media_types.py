"""Reads the type of a file from its first bytes: servers declare wrong types, and providers refuse them."""

from __future__ import annotations

import base64
import codecs

_URL_SAFE = str.maketrans("-_", "+/")

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types of images that providers take."""
AUDIO = frozenset({"audio/wav", "audio/mpeg", "audio/ogg", "audio/flac"})
"""The types of sound that :func:`media_type` recognises."""
PDF, TEXT = "application/pdf", "text/plain"

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"%PDF-", PDF),
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_THOUSAND = 1_000
_MPEG_LAYERS = {0xF2, 0xF3, 0xFA, 0xFB}


def media_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12])
    if data[:1] == b"\xff" and len(data) > 1 and data[1] in _MPEG_LAYERS:
        return "audio/mpeg"
    return next((kind for begins, kind in _BEGINNINGS if data.startswith(begins)), None)


def file_type(data: bytes) -> str | None:
    return media_type(data) or (None if read_text(data) is None else TEXT)


def read_base64(encoded: str) -> bytes:
    """Return the bytes of base64 in any form: with line breaks, URL-safe, or as a data URL."""
    plain = "".join(encoded.rpartition(";base64,")[2].split()).translate(_URL_SAFE).rstrip("=")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def read_text(data: bytes, encoding: str = "utf-8") -> str | None:
    """Return ``data`` as text, by default in ``encoding``; ``None`` if it is not a text."""
    try:
        text = decoded(data, encoding)
    except (ValueError, LookupError):
        return None
    return None if "\0" in text else text


_CONTROLS = bytes({*range(32)} - set(b"\t\n\f\r\x1b"))


def is_other_text(data: bytes) -> bool:
    """Return whether ``data`` looks like a text in another encoding than UTF-8, such as Latin-1."""
    return read_text(data) is None and len(data.translate(None, _CONTROLS)) == len(data)


def decoded(data: bytes, encoding: str = "utf-8") -> str:
    """Return a text file's text: by its byte order mark, or else in ``encoding``."""
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), encoding)
    return data.decode(marked)


def size_of(data: bytes | int) -> str:
    number, units = float(data if isinstance(data, int) else len(data)), ["bytes", "kB", "MB"]
    while number >= _THOUSAND and len(units) > 1:
        number, units = number / _THOUSAND, units[1:]
    return f"{number:.0f} {units[0]}"
