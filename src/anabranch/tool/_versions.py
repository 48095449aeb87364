"""Versions of a tool's code: their names, and the comparison of arguments that two versions read.

A stored call records the version, and may wait for a process with that version. By default, the
version is a digest of the source files that define the tools, without the files' imports. A tool
without readable source counts by its name and its parameters.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json

from anabranch._engine import canonical
from anabranch._text import read_json
from anabranch.errors import InvalidArgumentsError
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


def without_defaults(tool: Tool[Any], written: str) -> str:
    """Return the arguments of ``tool`` in the JSON ``written``, except those that equal their default.

    So a parameter that a deployment adds, with a default, leaves the arguments of open calls equal.
    """
    given: dict[str, Any] = read_json(written)
    required = {*tool.input_schema.get("required", ())}
    if not tool.parameters or given.keys() <= required:
        return written
    try:
        least = tool.validate({name: given[name] for name in given.keys() & required})
    except InvalidArgumentsError:  # an alias is the name in the schema
        return written
    defaults: dict[str, Any] = read_json(tool.to_json(least))
    kept = {
        name: value
        for name, value in given.items()
        if name in required or name not in defaults or defaults[name] != value
    }
    return to_json(kept).decode()
