"""The parameters and results of the saga methods as models, under the names of their proposal.

``docs/sagas.schema.json`` and ``docs/sagas.d.ts`` are made of them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Shape(BaseModel):
    """What crosses in camel case.

    JSON in it is ``Any``: it comes from a parser, and pydantic's ``JsonValue`` calls a function of
    Python for each part.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore", strict=True, alias_generator=to_camel, populate_by_name=True
    )


class CallToolSagaParams(_Shape):
    """Parameters of ``tools/callSaga``."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class SagaStepError(_Shape):
    """Why the client could not complete a step; -1 says that a person refused."""

    code: int = -32000
    message: str
    data: Any = None


class SagaStepResult(_Shape):
    """A step that the client has completed: with ``result`` or with ``error``.

    ``result`` is an ``ElicitResult`` or a ``CreateMessageResult``, as the step has asked for.
    """

    step_id: str
    result: dict[str, Any] | None = None
    error: SagaStepError | None = None


class ResumeToolSagaParams(_Shape):
    """Parameters of ``tools/resumeSaga``; ``completed_steps`` are all so far, each once."""

    saga_token: str
    completed_steps: list[SagaStepResult]


class ElicitationStep(_Shape):
    """Asks the person: a form, or with mode ``url`` a page."""

    type: Literal["elicitation"]
    step_id: str
    params: types.ElicitRequestParams


class SamplingStep(_Shape):
    """Asks the client's model."""

    type: Literal["sampling"]
    step_id: str
    params: types.CreateMessageRequestParams


SagaStep: TypeAlias = ElicitationStep | SamplingStep
"""One action that the client is to take."""


class ToolCallSagaResult(_Shape):
    """A saga that waits for its client; the last result is a ``CallToolResult`` instead.

    Without steps it waits for a time: it is resumed again with the steps that are complete.
    """

    state: Literal["suspended"]
    saga_token: str
    steps: list[Annotated[SagaStep, Field(discriminator="type")]]


class WrongField(_Shape):
    """Names the parameter that is wrong."""

    field: str


class WrongToken(_Shape):
    """Says that the token was refused, whatever the reason."""

    reason: Literal["invalid_saga_token"]


class SagaError(_Shape):
    """Why a request was refused, as JSON-RPC has it. A tool may raise errors of its own besides."""

    code: Literal[-32602]
    message: str
    data: WrongField | WrongToken
