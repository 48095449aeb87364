"""Repairs answers that violate the MCP schema before the SDK's client checks them.

The client checks an answer as a whole, so that one odd tool definition would cost all tools of a
server. Here the SDK's check runs on each definition separately.
"""

from __future__ import annotations

import logging
from typing import Any, Final, cast

import mcp_types as types
from mcp_types import methods
from pydantic import ValidationError

from anabranch._text import printable_line

logger: logging.Logger = logging.getLogger("anabranch.mcp")

NEEDED: Final = {"name", "inputSchema"}
"""Fields without which a tool cannot be called; any other odd field is dropped."""
MOST_NAMED: Final = 20
"""Maximum tools that a warning names."""

Json = dict[str, Any]


def with_sound_tools(answer: Any, version: str) -> Any:  # noqa: ANN401 - JSON of any server
    """Return the answer to ``tools/list`` without the definitions that violate MCP beyond repair."""
    page = cast("Json", answer if isinstance(answer, dict) else {})
    tools = cast("list[object] | None", page.get("tools"))
    if not isinstance(tools, list) or _problems(page, [], version) is not None:
        return cast("object", answer)  # the SDK's client reports the problem
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
        logger.warning(
            "Tools are left out, because their definitions violate MCP: %s%s", named, more
        )
    return page | {"tools": sound}


def with_content(answer: Any) -> Any:  # noqa: ANN401 - JSON of any server
    """Return an answer to ``tools/call``, with an empty ``content`` if it lacks one.

    The SDK refuses a result that has structured content alone.
    """
    result = cast("Json", answer if isinstance(answer, dict) else {})
    if result.get("content") is None and "structuredContent" in result:
        return Json(result, content=list[object]())
    return cast("object", answer)


def has_structured_content(result: types.CallToolResult) -> bool:
    """Return whether a server has sent structured content, which may be null."""
    return "structured_content" in result.model_fields_set


def _repaired(page: Json, tool: object, version: str) -> tuple[object, str | None]:
    if not isinstance(tool, dict):
        return tool, "it is no object"
    made = cast("Json", tool)
    problems = _problems(page, [made], version)
    if problems is None:
        return made, None
    made = made | {"inputSchema": _parameters(made.get("inputSchema"))}
    for place in _problems(page, [made], version) or ():
        if place and place[0] not in NEEDED:
            made.pop(place[0], None)
    problems = _problems(page, [made], version)
    return made, None if problems is None else next(iter(problems.values()))


def _parameters(schema: object) -> object:
    """Return the schema of a tool's parameters in the protocol's form, if its meaning is clear."""
    if schema is None or schema == []:  # PHP writes an empty object like this
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
    try:
        methods.parse_server_result("tools/list", version, page | {"tools": tools})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        places = [(_place(each["loc"]), each["msg"]) for each in found]
        return {at: printable_line(f"{'.'.join(at)}: {said}")[:200] for at, said in places}
    return None


def _place(loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the path of a fault inside one tool's definition: the part after the tool's number."""
    number = next((at for at, step in enumerate(loc) if isinstance(step, int)), -1)
    return tuple(map(str, loc[number + 1 :]))


def _name(tool: object) -> str:
    fields = cast("Json", tool) if isinstance(tool, dict) else {}
    return printable_line(str(fields.get("name", "a tool without a name")))[:200]
