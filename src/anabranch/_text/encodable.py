"""Makes foreign text encodable: every text that leaves the process over a wire is valid UTF-8.

A text is foreign if this library did not write it, for example the name of a file. Inside the
process a text stays unchanged; it changes only on its way out.
"""

from __future__ import annotations

import base64
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

T = TypeVar("T")


def encodable(value: T) -> T:
    r"""Return ``value`` with each lone surrogate in its texts escaped, as ``\udce9``, and other bytes as base64.

    ``value`` is JSON, a model or a dataclass. A file name that is not UTF-8 has lone surrogates, and
    UTF-8, which every wire speaks, has none. Bytes that are UTF-8 are text; all others become base64. An
    encodable value is returned unchanged.
    """
    # Imported here, so that a command that only prints its help does not load pydantic.
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415

    try:
        to_json(value)
    except (PydanticSerializationError, UnicodeEncodeError, ValueError, RecursionError):
        return cast("T", _escaped(value))
    return value


def _escaped(value: Any) -> Any:  # noqa: ANN401 - as encodable
    from pydantic import BaseModel  # noqa: PLC0415 - as encodable

    made: Any = value
    if isinstance(value, str):
        made = value.encode("utf-8", "backslashreplace").decode()
    elif isinstance(value, bytes | bytearray):
        made = _text_of(bytes(value))
    elif isinstance(value, dict):
        items = cast("Any", value).items()
        made = {_escaped(key): _escaped(item) for key, item in items}
    elif type(value) in (list, tuple):
        made = type(value)(map(_escaped, value))
    elif isinstance(value, BaseModel):
        made = value.model_copy(update={name: _escaped(item) for name, item in value})
    elif is_dataclass(value) and not isinstance(value, type):
        shown = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        made = replace(value, **{name: _escaped(item) for name, item in shown.items()})
    return made


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()
