"""The version of a tool's code. A stored call records it, and may wait for a process with that version.

By default, the version is a digest of the source files that define the tools, without the files'
imports. A tool without readable source counts by its name and its parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from anabranch._engine import canonical
from anabranch.tool._tools import Tool

_WELL_FORMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


def code_version(tools: Iterable[Tool[Any]], given: str | None = None) -> str:
    """Return the ``given`` version, checked, or else a digest of the code of ``tools``."""
    if given is not None:
        return checked_version(given)
    named = sorted(tools, key=lambda tool: tool.name)
    sources = sorted({source for tool in named for source in _sources(tool)})
    text = canonical([[[tool.name, tool.input_schema] for tool in named], sources])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def checked_version(version: str) -> str:
    if not _WELL_FORMED.fullmatch(version):
        raise ValueError(
            f"A version of the code is 1 to 100 letters, digits, '.', '_', '+' or '-', and begins"
            f" with a letter or a digit, not {version!r}."
        )
    return version


def _sources(tool: Tool[Any]) -> Iterable[str]:
    kinds: tuple[type[Any], ...] = type(tool).__mro__
    modules = [each.__module__ for each in kinds]
    classes = kinds[: modules.index(Tool.__module__)]
    for defined in (inspect.unwrap(tool.returned_by), *classes):
        try:
            lines, _ = inspect.findsource(defined)  # the lines of the whole file
        except (OSError, TypeError):  # defined at a prompt, by exec(), or in another language
            continue
        yield "".join(lines)
