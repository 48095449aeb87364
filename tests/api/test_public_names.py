"""The public names that the documentation promises."""

import inspect

import pytest

import anabranch
from anabranch import errors


def test_every_error_can_be_imported_from_the_top() -> None:
    assert set(errors.__all__) <= set(anabranch.__all__)


def test_the_documented_imports_work() -> None:
    from anabranch import Accepted, BranchContext, Elicitation, HandoffTool, Limits, tool
    from anabranch.testing import MockClient, run_tool

    names = [Accepted, BranchContext, Elicitation, HandoffTool, Limits, tool, MockClient, run_tool]
    assert all(callable(name) for name in names)


CONTRACT = {
    "sample": "prompt messages system_prompt max_tokens schema tools tool_choice"
    " model_preferences temperature stop_sequences include_context metadata key",
    "append": "said role",
    "converse": "prompt tools max_rounds options",
    "elicit": "question message context key",
    "elicit_url": "message url key",
    "branch": "fn args name inherit_messages inherit_system_prompt messages system_prompt tools"
    " max_depth max_tokens timeout",
    "gather": "operations",
    "race": "operations",
    "step": "fn args name undo",
    "call_tool": "tool arguments",
    "log": "level message",
    "notify": "message progress total",
    "now": "",
    "uuid": "",
}
"""What ``BranchContext`` offers, by the contract."""


@pytest.mark.parametrize("method", CONTRACT)
def test_the_context_has_the_documented_methods_and_parameters(method: str) -> None:
    function = getattr(anabranch.BranchContext, method)
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]
    assert sorted(parameters) == sorted(CONTRACT[method].split())
