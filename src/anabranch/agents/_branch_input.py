"""What a model may hand to ``branch_self``, and what it is told when it hands over something else.

Owns what the model is told of the tool, and the reading of its input: models send lists as
strings, and truth values as words. It never guesses at a list where there is none: prose with
commas is one prompt.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
)

from anabranch.agents._recombining import Recombiner
from anabranch.errors import ToolError
from anabranch.messages import ToolSpec

__all__ = ["SPEC", "BranchInput", "prompts_of", "read_input"]

RECOMBINERS: tuple[str, ...] = get_args(Recombiner)
HOW = (
    'Call it like this: branch_self(prompts=["first task", "second task"], allow_work=false,'
    f" parallel=true, recombine={' | '.join(map(json.dumps, RECOMBINERS))})."
)
SPEC: ToolSpec = ToolSpec(
    name="branch_self",
    description=(
        "Fork yourself: each prompt is answered in a branch of its own, by you, with all of this"
        " conversation before it. Use it to try several approaches or to do independent tasks at"
        " the same time. You get all results back together. A branch can be forked again."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "prompts": {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "description": "What each branch is to do: one prompt for each branch.",
            },
            "allow_work": {
                "type": "boolean",
                "default": False,
                "description": "Let each branch use tools until it is done. Otherwise it replies"
                " once, without using any.",
            },
            "parallel": {
                "type": "boolean",
                "default": True,
                "description": "Run the branches at once, not one after the other.",
            },
            "recombine": {
                "type": "string",
                "enum": list[JsonValue](RECOMBINERS),
                "default": "none",
                "description": "How the results become one: not at all, one after the other,"
                " merged into one text, or the best one, chosen by votes or by a judge.",
            },
        },
        "required": ["prompts"],
        "additionalProperties": False,
    },
)


def prompts_of(value: object) -> object:
    """Return the prompts that ``value`` holds: a list, a string with a list in it, one prompt.

    Raises:
        ValueError: it is a string that was meant to be a list, and is not well-formed.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    readers: tuple[Callable[[str], object], ...] = (json.loads, ast.literal_eval)
    for read in readers:
        try:
            found = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(found, list | tuple):
            return list(cast("list[object]", found))
    if text[:1] == "[" and text[1:].lstrip()[:1] in {'"', "'"} and text[-1:] == "]":
        raise ValueError("the list is neither JSON nor Python: check its quotes")
    return [text] if text else []


def _in_lower_case(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _not_blank(prompt: str) -> str:
    if not prompt.strip():
        raise ValueError("the prompt is blank")
    return prompt.strip()


class BranchInput(BaseModel):
    """The input of ``branch_self``, as it is meant."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    prompts: Annotated[
        tuple[Annotated[str, AfterValidator(_not_blank)], ...],
        BeforeValidator(prompts_of),
        Field(min_length=1),
    ]
    allow_work: bool = False
    parallel: bool = True
    recombine: Annotated[Recombiner, BeforeValidator(_in_lower_case)] = "none"


def read_input(given: Mapping[str, Any], most: int) -> BranchInput:
    """Return what is meant by ``given``; ``most`` is how many prompts there may be.

    Raises:
        ToolError: it cannot be understood; the model is told how to call the tool rightly.
    """
    try:
        meant = BranchInput.model_validate(dict(given))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"]))
        said = problem["msg"].removeprefix("Value error, ")
        raise ToolError(f"branch_self was not run: {where}: {said}. {HOW}") from None
    if len(meant.prompts) > most:
        raise ToolError(
            f"branch_self was not run: {len(meant.prompts)} prompts are too many, the limit is"
            f" {most}. Join some of them, or branch in several steps. {HOW}"
        )
    return meant
