"""The result of a command on stdout, as JSON or as text."""

from __future__ import annotations

import json
import sys

__all__ = ["print_json", "print_text"]


def print_json(value: object) -> None:
    """Print ``value`` as indented JSON; characters that stdout cannot encode are escaped."""
    encodable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
    print_text(json.dumps(value, indent=2, ensure_ascii=not encodable))


def print_text(text: str) -> None:
    """Print ``text``; characters that stdout cannot encode are escaped."""
    encoding = sys.stdout.encoding
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
