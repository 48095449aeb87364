"""Reads the tools and the context of a front end from a run of AG-UI, within limits.

A refusal is one sentence, and comes before the server stores anything of the run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from ag_ui.core import Context, RunAgentInput
from ag_ui.core import Tool as OfferedTool
from pydantic import JsonValue
from pydantic_core import from_json, to_json
from starlette.exceptions import HTTPException

from anabranch._schemas import UnusableSchemaError
from anabranch._text import encodable, number_problem
from anabranch.agents import Agent, ContextEntry, FrontEnd, most_tools
from anabranch.messages import ToolSpec
from anabranch.models import folded
from anabranch.tree import wire_name

MOST = 100
"""The most tools of a front end, and the most entries of context, that a run can have."""

LONGEST = 128 * 1024
"""The most bytes of JSON of all these tools, and of all this context."""

LONGEST_NAME = 200
NAME = re.compile(rf"[^\x00-\x1f\x7f-\x9f]{{1,{LONGEST_NAME}}}")

NO_PARAMETERS: dict[str, JsonValue] = {"type": "object", "properties": {}}


def read_front_end(wanted: RunAgentInput, agent: Agent) -> FrontEnd:
    """Return the tools and the context of a run's front end.

    Raises:
        HTTPException: if a tool has the name of another tool, a name or schema is unusable, or the run
            exceeds a limit of runs or of the model.
    """
    tools, context = wanted.tools or [], wanted.context or []
    _check_size("tools of the front end", tools)
    _check_size("entries of context", context)
    _check_names([each.name for each in tools], agent)
    return FrontEnd(
        tools=tuple(map(_spec, tools)),
        context=tuple(
            ContextEntry(description=each.description, value=each.value) for each in context
        ),
    )


def _check_size(what: str, given: Sequence[OfferedTool] | Sequence[Context]) -> None:
    if len(given) > MOST:
        raise HTTPException(422, f"A run can have {MOST} {what}; this one has {len(given)}.")
    size = len(to_json(encodable([each.model_dump() for each in given]))) if given else 0
    if size > LONGEST:
        raise HTTPException(
            422, f"The {what} of one run may have {LONGEST:,} bytes together; these have {size:,}."
        )


def _check_names(names: Sequence[str], agent: Agent) -> None:
    """Check that no two tools have the same name, or the same name in requests to a provider."""
    for name in names:
        if NAME.fullmatch(name) is None:
            raise HTTPException(
                422,
                f"The name of a tool has 1 to {LONGEST_NAME} characters; none is a control"
                " character.",
            )
    own = {wire_name(name) for name in agent.tools} if names else set[str]()
    if taken := [name for name in names if wire_name(name) in own]:
        raise HTTPException(
            422, f"The server has a tool {taken[0]!r}. Give the tool of the front end another name."
        )
    twice = [name for name, count in Counter(map(wire_name, names)).items() if count > 1]
    if twice:
        raise HTTPException(422, f"The front end has two tools {twice[0]!r}. Leave one out.")
    most = most_tools(agent.dependencies.model)
    if most is not None and names and len(names) + len(own) > most:
        raise HTTPException(
            422,
            f"The model takes at most {most} tools: the server has {len(own)}, and the front end"
            f" {len(names)}. Offer fewer.",
        )


def _spec(tool: OfferedTool) -> ToolSpec:
    given = cast("object", tool.parameters) or NO_PARAMETERS
    if problem := _problem(given):
        raise HTTPException(422, f"No model accepts the parameters of {tool.name!r}: {problem}.")
    schema = cast("dict[str, JsonValue]", given)
    return ToolSpec(name=tool.name, description=tool.description, input_schema=schema)


def _problem(schema: object) -> str | None:
    """Return why a tool cannot have these parameters, ``None`` if it can."""
    if not isinstance(schema, dict):
        return "they must be a JSON Schema of an object"
    given = cast("dict[str, JsonValue]", schema)
    return number_problem(given) or _schema_problem(to_json(encodable(given)))


@lru_cache(maxsize=500)
def _schema_problem(schema: bytes) -> str | None:
    """Return why providers reject a schema, ``None`` for a good schema; results are cached."""
    try:
        folded(from_json(schema))
    except UnusableSchemaError as error:
        return str(error).rstrip(".")
    return None
