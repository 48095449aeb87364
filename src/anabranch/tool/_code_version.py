"""The version of the code of some tools: what a call is begun under, and may have to wait for.

By default it is a digest of the source files in which the tools are defined, with their names and
parameters: the same on every machine that has the same files. A tool whose source cannot be read
counts by its name and its parameters. What those files import does not count; who wants that, or
names of releases, gives versions of their own.
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
    """Return the version that was ``given``, else a digest of the code of ``tools``.

    Raises:
        ValueError: if the one given cannot be used.
    """
    if given is not None:
        return checked_version(given)
    named = sorted(tools, key=lambda tool: tool.name)
    sources = sorted({source for tool in named for source in _sources(tool)})
    text = canonical([[[tool.name, tool.input_schema] for tool in named], sources])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def checked_version(version: str) -> str:
    """Return ``version``, if it can name a version of code.

    Raises:
        ValueError: it cannot.
    """
    if not _WELL_FORMED.fullmatch(version):
        raise ValueError(
            f"A version of the code is 1 to 100 letters, digits, '.', '_', '+' or '-', and begins"
            f" with a letter or a digit, not {version!r}."
        )
    return version


def _sources(tool: Tool[Any]) -> Iterable[str]:
    """Yield the text of each file that defines a part of ``tool``, as far as it can be read."""
    kinds: tuple[type[Any], ...] = type(tool).__mro__
    modules = [each.__module__ for each in kinds]
    classes = kinds[: modules.index(Tool.__module__)]
    for defined in (inspect.unwrap(tool.returned_by), *classes):
        try:
            lines, _ = inspect.findsource(defined)  # of the whole file
        except (OSError, TypeError):  # made at a prompt, by exec(), or in another language
            continue
        yield "".join(lines)
