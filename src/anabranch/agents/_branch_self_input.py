"""The input and the description of the tool ``branch_self``, and the summary of its branches."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from anabranch._text import read_json
from anabranch.agents._agent_tools import read_input
from anabranch.agents._branch_progress import BranchOutcome
from anabranch.agents._recombination import Recombined, Recombiner
from anabranch.errors import ToolError
from anabranch.messages import ToolSpec

RECOMBINERS: tuple[str, ...] = get_args(Recombiner)
USAGE = (
    'Call it like this: branch_self(prompts=["first task", "second task"], allow_work=false,'
    f" parallel=true, recombine={' | '.join(map(json.dumps, RECOMBINERS))})."
)
SPEC: ToolSpec = ToolSpec(
    name="branch_self",
    description=(
        "Fork yourself: each prompt is answered in a branch of its own, by you, with all of this"
        " conversation before it. Use it to try several approaches or to do independent tasks at"
        " the same time. You get all results at once. A branch can be forked again."
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


def _prompts(value: object) -> object:
    # Models send lists as strings, in JSON or Python. Prose with commas is one prompt.
    if not isinstance(value, str):
        return value
    text = value.strip()
    readers: tuple[Callable[[str], object], ...] = (read_json, ast.literal_eval)
    for reader in readers:
        try:
            found = reader(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(found, list | tuple):
            return list(cast("list[object]", found))
    if _begins_a_list(text):
        raise ValueError("the list is neither JSON nor Python: check its quotes and its end")
    return [text] if text else []


def _begins_a_list(text: str) -> bool:
    begins = re.match(r"""[\[(]\s*["']""", text) is not None
    whole = text[:1] == "[" and (text[-1:] == "]" or "]" not in text)
    return begins and (whole or _FIRST_ITEM.match(text) is not None)


_FIRST_ITEM = re.compile(
    r"""[\[(]\s*(?:"(?:\\.|[^"\\])*(?:"\s*(?:,|$)|$)|'(?:\\.|[^'\\])*(?:'\s*(?:,|$)|$))""",
    re.DOTALL,
)
"""The beginning of a list, up to the comma after its first item or to the end of the text."""


def _in_lower_case(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _not_blank(prompt: str) -> str:
    if not prompt.strip():
        raise ValueError("the prompt is blank")
    return prompt.strip()


class BranchSelfInput(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)

    prompts: Annotated[
        tuple[Annotated[str, AfterValidator(_not_blank)], ...],
        BeforeValidator(_prompts),
        Field(min_length=1),
    ]
    allow_work: bool = False
    parallel: bool = True
    recombine: Annotated[Recombiner, BeforeValidator(_in_lower_case)] = "none"


def read_prompts(arguments: Mapping[str, Any], max_prompts: int) -> BranchSelfInput:
    read = read_input(BranchSelfInput, arguments, SPEC.name, USAGE)
    if len(read.prompts) > max_prompts:
        raise ToolError(
            f"branch_self was not run: {len(read.prompts)} prompts are too many, the limit is"
            f" {max_prompts}. Join some of them, or branch in several steps. {USAGE}"
        )
    return read


EXCERPT = 200
"""Maximum characters of each answer in a summary with a recombined text."""


@dataclass(frozen=True, slots=True)
class EndedBranch:
    name: str
    prompt: str
    outcome: BranchOutcome | None

    @property
    def answer(self) -> str:
        outcome = self.outcome
        if outcome is None:
            return ""
        partial = outcome.partial.strip()
        return f"(incomplete, as this branch failed) {partial}" if partial else outcome.text

    def report(self, max_length: int | None) -> str:
        outcome = self.outcome
        if outcome is None:
            return "Interrupted before it was done."
        if outcome.error is not None:
            partial = _excerpt(outcome.partial.strip(), max_length)
            return f"Failed: {outcome.error}" + (f"\nBefore that: {partial}" if partial else "")
        calls = ", ".join(use.name for use in outcome.end.tool_uses)
        unused = f"(It called {calls}, which was not run: allow_work is false.)" if calls else ""
        text = _excerpt(outcome.text.strip(), max_length)
        return " ".join(filter(None, [text, unused])) or "(It has said nothing.)"


def _excerpt(text: str, max_length: int | None) -> str:
    if max_length is None or len(text) <= max_length:
        return text
    return f"{text[:max_length].rstrip()}…"


def summary(wanted: BranchSelfInput, branches: Sequence[EndedBranch], made: Recombined) -> str:
    done = sum(branch.outcome is not None and branch.outcome.error is None for branch in branches)
    order = "parallel" if wanted.parallel else "sequential"
    mode = "iterative" if wanted.allow_work else "single response"
    max_length = None if wanted.recombine == "none" else EXCERPT
    parts = [f"{done}/{len(branches)} branches completed ({order}, {mode})."]
    parts += [f"{each.name} ({each.prompt}):\n{each.report(max_length)}" for each in branches]
    parts += [made.note, made.text]
    return "\n\n".join(filter(None, parts))
