"""The parameters and results of the saga methods; ``docs/sagas.schema.json`` is generated from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.types import CallToolResult
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from anabranch._text import TooDeepError, encodable, number_problem, require_shallow
from anabranch.mcp._error_mapping import checked_results


class _Shape(BaseModel):
    """A model with camel-case JSON, which pydantic builds at its first use.

    JSON fields of a shape are ``Any``, since pydantic's ``JsonValue`` would call a Python function for
    each part.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        defer_build=True,
    )


class CallToolSagaParams(_Shape):
    """Parameters of ``tools/callSaga``."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class SagaStepError(_Shape):
    """A client's error in place of an answer to a saga's step; -1 means that the user refused."""

    code: int = -32000
    message: str
    data: Any = None


class SagaStepResult(_Shape):
    """A client's answer to a step of a saga: a ``result`` or an ``error``.

    ``result`` is an ``ElicitResult`` or a ``CreateMessageResult``, as the step requires.
    """

    step_id: str
    result: dict[str, Any] | None = None
    error: SagaStepError | None = None


class ResumeToolSagaParams(_Shape):
    """Parameters of the request ``tools/resumeSaga``, with all answered steps."""

    saga_token: str
    completed_steps: list[SagaStepResult]


class ElicitationStep(_Shape):
    """A question to the user: a form or, with mode ``url``, a page to visit."""

    type: Literal["elicitation"]
    step_id: str
    params: types.ElicitRequestParams


class SamplingStep(_Shape):
    """A request to the client's model."""

    type: Literal["sampling"]
    step_id: str
    params: types.CreateMessageRequestParams


SagaStep: TypeAlias = ElicitationStep | SamplingStep
"""One action for the client."""


class ToolCallSagaResult(_Shape):
    """A saga that waits for its client; the last result is a ``CallToolResult`` instead.

    Without steps, the saga waits for a time: the client resumes it again with the completed steps.
    """

    state: Literal["suspended"]
    saga_token: str
    steps: list[Annotated[SagaStep, Field(discriminator="type")]]


class WrongField(_Shape):
    """The error data that names the wrong parameter."""

    field: str


class WrongToken(_Shape):
    """The error data for a refused token, the same for any reason."""

    reason: Literal["invalid_saga_token"]


class SagaError(_Shape):
    """The JSON-RPC error of a refused request. A tool may raise other errors."""

    code: Literal[-32602]
    message: str
    data: WrongField | WrongToken


CALL_SAGA: Final = "tools/callSaga"
RESUME_SAGA: Final = "tools/resumeSaga"
IDENTIFIER: Final = "io.github.anabranch/sagas"
"""The name under which a server advertises the two methods."""

LARGEST: Final = 4 * 1024 * 1024
"""Maximum characters of a field: the SDK's limit over HTTP; over stdio the SDK has none."""
QUOTED: Final = 80
"""Maximum characters of a text in an error message."""

S = TypeVar("S", bound=BaseModel)


class LooseParams(types.RequestParams):
    """Parameters of any kind, because the SDK would refuse a bad parameter without its name."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


def read(shape: type[S], params: Mapping[str, Any] | None) -> S:
    """Return ``params``, checked, as an instance of ``shape``; ``invalid`` names a wrong field."""
    known = {field.alias for field in shape.model_fields.values()}
    given = {name: value for name, value in (params or {}).items() if name in known}
    for name, value in given.items():
        _require_bounds(name, value)
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise invalid(_where(problem["loc"]), problem["msg"]) from error


def invalid(field: str, problem: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, f"{field}: {problem}", {"field": field})


def quoted(text: str) -> str:
    return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")


def _require_bounds(field: str, value: object) -> None:
    try:
        require_shallow(value)
    except TooDeepError as error:
        raise invalid(field, str(error)) from None
    if (problem := number_problem(value)) is not None:
        raise invalid(field, problem)
    if len(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) > LARGEST:
        raise invalid(field, f"it has more than {LARGEST} characters")


def _where(location: tuple[int | str, ...]) -> str:
    """Return the path of a problem as text, such as ``completedSteps[0].stepId``."""
    named = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return named.removeprefix(".") or "params"


Convert: TypeAlias = Callable[[object], BaseModel]
"""Converts a tool's value to the host's result."""


def to_result(value: object, convert: Convert) -> dict[str, Any]:
    """Return a tool's ``value`` as the JSON of a result of ``tools/call``."""
    with checked_results():
        result = to_wire(convert(encodable(value)))
    if isinstance(value, str):  # as in the sagas' proposal: not the same text twice
        result.pop("structuredContent", None)
    return result


def to_wire(converted: BaseModel) -> dict[str, Any]:
    result = converted.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude={"result_type"}
    )
    if isinstance(converted, CallToolResult) and not converted.is_error:
        del result["isError"]
    return result
