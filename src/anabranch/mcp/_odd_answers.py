"""Repairs odd answers of a server before the SDK's client checks them.

The client checks an answer as a whole, so that one odd tool definition would cost all tools of a server.
Here each definition is checked alone, by the SDK's own check. A definition is repaired where its meaning
is plain: no parameters where it has no schema, and no output schema where that has another type than
the protocol allows. A definition that remains odd is left out, with a warning that names its tool.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp_types import methods
from pydantic import ValidationError

from anabranch._text import printable_line

logger: logging.Logger = logging.getLogger("anabranch.mcp")

NEEDED: Final = {"name", "inputSchema"}
"""Fields of a definition without which no tool can be called; any other is dropped where it is odd."""
MOST_NAMED: Final = 20
"""Left out tools that a warning names."""

Json = dict[str, Any]


def with_sound_tools(answer: Any, version: str) -> Any:  # noqa: ANN401 - JSON of any server
    """Return the answer to ``tools/list`` with the definitions that are sound, or can be repaired.

    Args:
        answer: of any server; one without a list of tools is returned unchanged.
        version: the protocol's version.
    """
    page = cast("Json", answer if isinstance(answer, dict) else {})
    tools = cast("list[object] | None", page.get("tools"))
    if not isinstance(tools, list) or _problems(page, [], version) is not None:
        return cast("object", answer)  # the SDK's client says what is wrong
    if _problems(page, tools, version) is None:
        return page
    sound, left_out = list[object](), list[str]()
    for tool in tools:
        repaired, reason = _repaired(page, tool, version)
        if reason is None:
            sound.append(repaired)
        else:
            left_out.append(f"{_name(tool)} ({reason})")
    if left_out:
        named = ", ".join(left_out[:MOST_NAMED])
        more = f", and {len(left_out) - MOST_NAMED} more" if len(left_out) > MOST_NAMED else ""
        logger.warning("Tools are left out, since MCP defines none like them: %s%s", named, more)
    return page | {"tools": sound}


def with_content(answer: Any) -> Any:  # noqa: ANN401 - JSON of any server
    """Return the answer to ``tools/call`` with empty content where it has structured content alone."""
    result = cast("Json", answer if isinstance(answer, dict) else {})
    if result.get("content") is None and "structuredContent" in result:
        return Json(result, content=list[object]())
    return cast("object", answer)


def has_structured_content(result: types.CallToolResult) -> bool:
    """Return whether a server has sent structured content, which may be null."""
    return "structured_content" in result.model_fields_set


def _repaired(page: Json, tool: object, version: str) -> tuple[object, str | None]:
    """Return a definition that the SDK accepts, and why there is none."""
    if not isinstance(tool, dict):
        return tool, "it is no object"
    made = cast("Json", tool)
    problems = _problems(page, [made], version)
    if problems is None:
        return made, None
    made = made | {"inputSchema": _parameters(made.get("inputSchema"))}
    for field in _fields(_problems(page, [made], version) or {}) - NEEDED:
        made.pop(field, None)
    problems = _problems(page, [made], version)
    return made, None if problems is None else next(iter(problems.values()))


def _parameters(schema: object) -> object:
    """Return the schema of a tool's parameters as the protocol has it, where its meaning is plain."""
    if schema is None or schema == []:  # the way in which PHP writes an empty object
        return Json(type="object")
    if not isinstance(schema, dict):
        return schema
    given = {key: value for key, value in cast("Json", schema).items() if value is not None}
    if given.get("properties") == []:
        del given["properties"]
    kind: object = given.get("type", "object")
    if isinstance(kind, list) and "object" in cast("list[object]", kind):
        kind = "object"
    return Json(given, type=kind)


def _problems(page: Json, tools: list[Any], version: str) -> dict[tuple[str, ...], str] | None:
    """Return what the SDK's client refuses in ``tools``, by place; ``None`` if nothing."""
    try:
        methods.parse_server_result("tools/list", version, page | {"tools": tools})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return {_place(each["loc"]): _line(_place(each["loc"]), each["msg"]) for each in found}
    return None


def _place(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return a place in a definition: what follows its number in the list."""
    number = next((at for at, step in enumerate(loc) if isinstance(step, int)), -1)
    return tuple(map(str, loc[number + 1 :]))


def _line(place: tuple[str, ...], message: str) -> str:
    return printable_line(f"{'.'.join(place)}: {message}")[:200]


def _fields(problems: Mapping[tuple[str, ...], str]) -> set[str]:
    return {place[0] for place in problems if place}


def _name(tool: object) -> str:
    fields = cast("Json", tool) if isinstance(tool, dict) else {}
    return printable_line(str(fields.get("name", "a tool without a name")))[:200]
