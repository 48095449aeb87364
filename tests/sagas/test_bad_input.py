"""Invalid parameters: the error begins with the name of the field.

The saga proposal does not specify errors.
"""

import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer

from anabranch import BranchContext, tool
from anabranch._durable import SagaClaims
from anabranch._text import DEEPEST
from anabranch.mcp import CallToolSagaParams, ResumeToolSagaParams
from anabranch.mcp._saga_shapes import LARGEST, read
from tests.mcp.harness import ERAS, MODERN, Answers, connected, serving
from tests.sagas.harness import Number, accepted, call_saga, failed, raw, refusal, resume_saga, said

ANSWER = {"action": "accept", "content": {"n": 1}}
GOOD = accepted("ask/elicit.1", n=1)
ran: list[str] = []


@tool
async def ask(ctx: BranchContext, data: Any = None) -> str:
    """Ask the user and the model."""
    ran.append("ask")
    form, _ = await ctx.gather(ctx.elicit(Number, "?"), ctx.sample("?"))
    return form.action


@pytest.fixture(params=ERAS)
async def client(request: pytest.FixtureRequest) -> AsyncGenerator[Client]:
    async with connected(serving(ask), request.param, Answers()) as connection:
        ran.clear()
        yield connection


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


CALLS: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "name: Field required"),
    "no name": ({"arguments": {}}, "name: Field required"),
    "a number for a name": ({"name": 5}, "name: Input should be a valid string"),
    "null for a name": ({"name": None}, "name: Input should be a valid string"),
    "a list for a name": ({"name": ["ask"]}, "name: Input should be a valid string"),
    "an unknown tool": ({"name": "asks"}, "name: there is no tool 'asks'; tools/list has"),
    "an empty name": ({"name": ""}, "name: there is no tool ''"),
    "a long name": ({"name": "x" * 10**6}, f"name: there is no tool '{'x' * 80}...'"),
    "text for arguments": ({"name": "ask", "arguments": "{}"}, "arguments: Input should be a"),
    "a list of arguments": ({"name": "ask", "arguments": []}, "arguments: Input should be a"),
    "null for arguments": ({"name": "ask", "arguments": None}, "arguments: Input should be a"),
    "deep arguments": (
        {"name": "ask", "arguments": {"data": nested(DEEPEST)}},
        f"arguments: it is nested too deeply, more than {DEEPEST} lists and objects deep",
    ),
    "large arguments": (
        {"name": "ask", "arguments": {"data": "x" * LARGEST}},
        f"arguments: it has more than {LARGEST} characters",
    ),
    "many arguments": (
        {"name": "ask", "arguments": {"data": [0] * LARGEST}},
        f"arguments: it has more than {LARGEST} characters",
    ),
    "a long number": (
        {"name": "ask", "arguments": {"data": -(10**4300)}},
        "arguments: a number has at most 4300 digits",
    ),
}


@pytest.mark.parametrize("case", CALLS)
async def test_call_saga_names_the_field_that_is_wrong(client: Client, case: str) -> None:
    params, words = CALLS[case]
    error = await refusal(client, "tools/callSaga", params)
    field = words.partition(":")[0]
    assert error.code == -32602
    assert error.message.startswith(words)
    assert len(error.message) < 200
    assert error.data == {"field": field}
    assert ran == []


async def test_input_just_within_bounds_is_taken(client: Client) -> None:
    data = {"deep": nested(DEEPEST - 2), "long": 10**4299, "text": "x" * 10**6}
    reply = await call_saga(client, "ask", {"data": data})
    steps = [GOOD, said("ask/sample.1", "y" * 10**6)]
    assert "isError" not in await resume_saga(client, reply["sagaToken"], *steps)


@pytest.mark.parametrize("part", [7, "text", [], {}, {"a": [1]}, None], ids=str)
def test_no_python_runs_for_each_part_of_a_large_value(part: Any) -> None:
    """A check that runs Python for each of a million parts would delay every other call for seconds."""

    def calls(parts: int) -> int:
        made = 0

        def count(*_: object) -> None:
            nonlocal made
            made += 1

        arguments = {"data": [part] * parts}
        step = {"stepId": "a", "result": arguments}
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            read(CallToolSagaParams, {"name": "ask", "arguments": arguments})
            read(ResumeToolSagaParams, {"sagaToken": "t", "completedSteps": [step]})
            SagaClaims(tool="ask", arguments=arguments, state="")
        finally:
            sys.setprofile(before)
        return made

    assert calls(10_000) == calls(10)


TOKEN = "the token"
"""Stands for the real one, which differs in every run."""
SAMPLE = said("ask/sample.1", "So.")


def resumed(*steps: Any) -> dict[str, Any]:
    return {"sagaToken": TOKEN, "completedSteps": list(steps)}


def step(**fields: Any) -> dict[str, Any]:
    return {"stepId": "ask/elicit.1", **fields}


RESUMES: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "sagaToken: Field required"),
    "no token": ({"completedSteps": [GOOD]}, "sagaToken: Field required"),
    "a number for a token": ({"sagaToken": 1, "completedSteps": []}, "sagaToken: Input should be"),
    "null for a token": ({"sagaToken": None, "completedSteps": []}, "sagaToken: Input should be"),
    "no steps": ({"sagaToken": TOKEN}, "completedSteps: Field required"),
    "null for steps": ({"sagaToken": TOKEN, "completedSteps": None}, "completedSteps: Input"),
    "an object for steps": ({"sagaToken": TOKEN, "completedSteps": GOOD}, "completedSteps: Input"),
    "text for a step": (resumed("x"), "completedSteps[0]: Input should be"),
    "null for a step": (resumed(GOOD, None), "completedSteps[1]: Input should be"),
    "no step id": (resumed({"result": ANSWER}), "completedSteps[0].stepId: Field required"),
    "a number for an id": (
        resumed({"stepId": 1, "result": ANSWER}),
        "completedSteps[0].stepId: Input should be a valid string",
    ),
    "an unknown id": (
        resumed(GOOD, SAMPLE, accepted("ask/elicit.9", n=1)),
        "completedSteps[2].stepId: step 'ask/elicit.9' was not asked",
    ),
    "a long id": (
        resumed(accepted("x" * 10**6, n=1)),
        f"completedSteps[0].stepId: step '{'x' * 80}...' was not asked",
    ),
    "none of the steps": (
        resumed(),
        "completedSteps: the steps ['ask/elicit.1', 'ask/sample.1'] are missing",
    ),
    "one step of two": (resumed(GOOD), "completedSteps: the steps ['ask/sample.1'] are missing"),
    "a step twice": (
        resumed(GOOD, SAMPLE, GOOD),
        "completedSteps[2].stepId: step 'ask/elicit.1' is given twice",
    ),
    "neither": (resumed(step()), "completedSteps[0]: give either result or error"),
    "both null": (resumed(step(result=None, error=None)), "completedSteps[0]: give either"),
    "both": (
        resumed(step(result=ANSWER, error={"code": 1, "message": "x"})),
        "completedSteps[0]: give either result or error",
    ),
    "text for a result": (resumed(step(result="yes")), "completedSteps[0].result: Input should"),
    "a list for a result": (resumed(step(result=[])), "completedSteps[0].result: Input should"),
    "text for an error": (resumed(step(error="no")), "completedSteps[0].error: Input should"),
    "an error without words": (
        resumed(step(error={"code": 1})),
        "completedSteps[0].error.message: Field required",
    ),
    "text for a code": (
        resumed(step(error={"code": "1", "message": "x"})),
        "completedSteps[0].error.code: Input should be a valid integer",
    ),
    "a number for words": (
        resumed(step(error={"code": 1, "message": 1})),
        "completedSteps[0].error.message: Input should be a valid string",
    ),
    "an empty result": (resumed(step(result={})), "completedSteps[0].result: it is not an Elicit"),
    "an unknown action": (
        resumed(step(result={"action": "perhaps"})),
        "completedSteps[0].result: it is not an ElicitResult",
    ),
    "a form in a form": (
        resumed(step(result={"action": "accept", "content": {"n": {"n": 1}}})),
        "completedSteps[0].result: it is not an ElicitResult",
    ),
    "a reply for a form": (
        resumed({**SAMPLE, "stepId": "ask/elicit.1"}, SAMPLE),
        "completedSteps[0].result: it is not an ElicitResult",
    ),
    "a form for a reply": (
        resumed(GOOD, {**GOOD, "stepId": "ask/sample.1"}),
        "completedSteps[1].result: it is not a CreateMessageResult",
    ),
    "a deep result": (
        resumed(step(result={"action": "accept", "content": nested(DEEPEST)})),
        f"completedSteps: it is nested too deeply, more than {DEEPEST} lists and objects deep",
    ),
    "a large error": (
        resumed(failed("ask/elicit.1", "x" * LARGEST)),
        f"completedSteps: it has more than {LARGEST} characters",
    ),
    "a long number": (
        resumed(step(error={"code": 10**5000, "message": "x"})),
        "completedSteps: a number has at most 4300 digits",
    ),
}


@pytest.mark.parametrize("case", RESUMES)
async def test_resume_saga_names_the_field_that_is_wrong(client: Client, case: str) -> None:
    params, words = RESUMES[case]
    token = (await call_saga(client, "ask", {}))["sagaToken"]
    ran.clear()
    if params.get("sagaToken") == TOKEN:
        params = {**params, "sagaToken": token}
    error = await refusal(client, "tools/resumeSaga", params)
    assert error.code == -32602
    assert error.message.startswith(words)
    assert len(error.message) < 250
    assert error.data == {"field": words.partition(":")[0]}
    assert ran == []
    # The refusals have changed nothing: the saga can continue.
    done = await resume_saga(client, token, GOOD, SAMPLE)
    assert done == {"content": [{"type": "text", "text": "accept"}]}


async def test_unknown_fields_are_ignored(client: Client) -> None:
    """The protocol makes receivers ignore unknown fields of requests."""
    one = await raw(client, "tools/callSaga", {"name": "ask", "arguments": {}, "more": nested(70)})
    params = {
        "sagaToken": one["sagaToken"],
        "completedSteps": [{**GOOD, "more": 1}, SAMPLE],
        "more": 1,
    }
    assert (await raw(client, "tools/resumeSaga", params))["content"][0]["text"] == "accept"


@pytest.mark.parametrize("method", ["tools/callsaga", "tools/resumesaga", "tools/saga"])
async def test_an_unknown_method_is_not_found(client: Client, method: str) -> None:
    assert (await refusal(client, method, {})).code == -32601


async def test_a_server_without_our_tools_has_no_sagas() -> None:
    async with connected(MCPServer("plain"), MODERN, Answers()) as connection:
        with pytest.raises(MCPError) as refused:
            await call_saga(connection, "ask", {})
    assert refused.value.error.code == -32601
