"""The published schema and TypeScript of the saga methods match the models and real messages."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.api import saga_schema
from tests.sagas.proposal import FIRST, MESSAGE_2, MESSAGE_4, MESSAGE_6, SECOND

HOW = "the models of sagas have changed; if that is meant, run `make api` and commit what it writes"


def test_the_json_schema_is_made_of_the_models() -> None:
    assert saga_schema.SCHEMA.read_text(encoding="utf-8") == saga_schema.written(), HOW


def test_the_typescript_definitions_are_made_of_the_same() -> None:
    assert saga_schema.TYPESCRIPT.read_text(encoding="utf-8") == saga_schema.typescript(), HOW


TOKEN = {"sagaToken": "v1"}
ERROR = {"code": -1, "message": "User rejected", "data": {"by": "rule"}}
VALID: list[tuple[str, Any]] = [
    ("CallToolSagaParams", {"name": "complex_tool", "arguments": {"initial_arg": "value"}}),
    ("CallToolSagaParams", {"name": "complex_tool"}),
    ("SagaReply", {**MESSAGE_2, **TOKEN}),
    ("ToolCallSagaResult", {**MESSAGE_2, **TOKEN}),
    ("ResumeToolSagaParams", {**TOKEN, "completedSteps": [FIRST]}),
    ("ToolCallSagaResult", {**MESSAGE_4, **TOKEN}),
    ("ResumeToolSagaParams", {**TOKEN, "completedSteps": [FIRST, SECOND]}),
    ("CallToolResult", MESSAGE_6),
    ("SagaStepResult", {"stepId": "step-sampling-B", "error": ERROR}),
    ("SagaError", {"code": -32602, "message": "name: …", "data": {"field": "name"}}),
    ("SagaError", {"code": -32602, "message": "…", "data": {"reason": "invalid_saga_token"}}),
    ("CallToolSagaRequest", {"method": "tools/callSaga", "params": {"name": "complex_tool"}}),
]
"""The proposal's six messages, and errors."""
INVALID: list[tuple[str, Any]] = [
    ("CallToolSagaParams", {"arguments": {}}),
    ("ToolCallSagaResult", {**TOKEN, "state": "suspended"}),
    ("ToolCallSagaResult", {**MESSAGE_2}),
    ("SagaStep", {"type": "roots", "stepId": "a", "params": {}}),
    ("SagaStepResult", {"stepId": "a", "result": {"action": "perhaps"}}),
    ("SagaError", {"code": -32602, "message": "…", "data": {"reason": "expired"}}),
]


@pytest.mark.parametrize(("name", "instance"), VALID)
def test_exchanged_messages_fit_their_definitions(name: str, instance: Any) -> None:
    jsonschema.validate(instance, definition(name))


@pytest.mark.parametrize(("name", "instance"), INVALID)
def test_other_messages_fit_no_definition(name: str, instance: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(instance, definition(name))


def definition(name: str) -> dict[str, Any]:
    return {**saga_schema.schema(), **saga_schema.reference(name)}
