"""The tool's view of its client's steps, and the client's view of the tool."""

from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from pydantic import BaseModel

from anabranch import BranchContext, StepFailed, tool
from anabranch.mcp import SagaClient
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from tests.mcp.harness import ERAS, HANDSHAKE, Answers, connected, serving
from tests.mcp.harness import accept as accept_form
from tests.sagas.harness import (
    Number,
    User,
    accepted,
    call_saga,
    failed,
    raw,
    resume_saga,
    said,
    text_in,
)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def run(body: Any, era: str, *turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Call ``body`` as a saga and complete steps turn by turn; return all replies."""
    async with connected(serving(tool(name="t")(body)), era, Answers()) as client:
        replies = [await call_saga(client, "t", {})]
        completed: list[dict[str, Any]] = []
        for turn in turns:
            completed += turn
            replies.append(await resume_saga(client, replies[-1]["sagaToken"], *completed))
    return replies


async def test_simultaneous_questions_are_the_steps_of_one_turn(era: str) -> None:
    """``steps`` holds one or more questions."""

    async def body(ctx: BranchContext) -> list[Any]:
        form, reply, address = await ctx.gather(
            ctx.elicit(Number, "How many?"), ctx.sample("Why?"), ctx.elicit_url("Pay.", "https://x")
        )
        return [form.action, reply.text, address.action]

    agreed = {"stepId": "t/url.1", "result": {"action": "accept"}}
    first, last = await run(
        body, era, [said("t/sample.1", "So."), agreed, accepted("t/elicit.1", n=1)]
    )
    assert {step["stepId"]: step["type"] for step in first["steps"]} == {
        "t/elicit.1": "elicitation",
        "t/sample.1": "sampling",
        "t/url.1": "elicitation",
    }
    assert [step["params"].get("mode") for step in first["steps"]].count("url") == 1
    assert last["structuredContent"] == {"result": ["accept", "So.", "accept"]}


async def test_a_step_has_the_parameters_of_the_model(era: str) -> None:
    async def body(ctx: BranchContext) -> str:
        reply = await ctx.sample("?", temperature=0.5, stop_sequences=["."], metadata={"a": None})
        return reply.text

    first, last = await run(body, era, [said("t/sample.1", "So.")])
    (step,) = first["steps"]
    assert (
        step["params"].items()
        >= {"temperature": 0.5, "stopSequences": ["."], "metadata": {"a": None}}.items()
    )
    assert last["content"][0]["text"] == "So."


async def test_the_context_of_a_form_is_not_part_of_the_printed_message(era: str) -> None:
    async def body(ctx: BranchContext) -> str:
        return (await ctx.elicit(Number, "How many?", context={"free": [1, "caf\udce9"]})).action

    (first,) = await run(body, era)
    (step,) = first["steps"]
    assert step["params"].pop("_meta") == {"anabranch/context": {"free": [1, "caf\\udce9"]}}
    assert step["params"]["message"] == "How many?"
    assert step["params"].keys() == {"message", "requestedSchema"}

    class Seen(User):
        async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
            assert isinstance(request, ElicitRequest)
            self.asked.append(str(request.context))
            return ElicitReply(action="decline")

    user = Seen(lambda _, __: None)
    async with connected(serving(tool(name="t")(body)), era, Answers()) as client:
        await SagaClient(client, user).call_tool("t")
    assert user.asked == [str({"free": [1, "caf\\udce9"]})]


@pytest.mark.parametrize("step", ["t/elicit.1", "t/sample.1"])
async def test_a_steps_error_is_raised_on_the_line_that_asked_and_can_be_caught(
    era: str, step: str
) -> None:
    """The proposal lets a step fail on the client side."""

    async def body(ctx: BranchContext) -> str:
        try:
            await (ctx.sample("?") if "sample" in step else ctx.elicit(Number, "?"))
        except StepFailed as problem:
            again = await ctx.elicit(Number, "Then a number?", key="again")
            return f"{problem.step_id} {problem.error} {problem.detail} {again.action}"
        return "no error"

    replies = await run(body, era, [failed(step)], [accepted("again", n=1)])
    assert text_in(replies[-1]) == f"{step} -32001 not today accept"


async def test_the_data_of_an_error_arrives_with_it(era: str) -> None:
    """An error may have ``data``."""

    async def body(ctx: BranchContext) -> Any:
        try:
            await ctx.sample("?")
        except StepFailed as problem:
            await ctx.elicit(Number, "And now?")  # the replay raises the recorded error again
            return problem.data
        return "no error"

    error = {"code": 429, "message": "busy", "data": {"retryAfter": [3]}}
    *_, last = await run(
        body, era, [{"stepId": "t/sample.1", "error": error}], [accepted("t/elicit.1", n=1)]
    )
    assert text_in(last) == '{\n  "retryAfter": [\n    3\n  ]\n}'


@pytest.mark.parametrize("how", ["form", "page"])
async def test_a_refusal_by_an_error_has_declined(era: str, how: str) -> None:
    """The proposal sends "the user rejected the elicitation" as an error with code -1."""

    async def body(ctx: BranchContext) -> str:
        if how == "page":
            return (await ctx.elicit_url("Pay.", "https://x")).action
        return (await ctx.elicit(Number, "?")).action

    step = "t/url.1" if how == "page" else "t/elicit.1"
    *_, last = await run(body, era, [failed(step, "User rejected the elicitation", -1)])
    assert text_in(last) == "decline"


async def test_a_sample_that_the_user_refused_raises_the_refusal(era: str) -> None:
    async def body(ctx: BranchContext) -> str:
        try:
            return (await ctx.sample("?")).text
        except StepFailed as problem:
            return f"{problem.refused} {problem}"

    *_, last = await run(body, era, [failed("t/sample.1", "User rejected sampling request", -1)])
    assert text_in(last) == (
        "True Step 't/sample.1' was refused on the client's side (User rejected sampling request)."
        " Catch StepFailed to handle it."
    )


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_question_is_an_answer(era: str, action: str) -> None:
    async def body(ctx: BranchContext) -> str:
        return (await ctx.elicit(Number, "?")).action

    *_, last = await run(body, era, [{"stepId": "t/elicit.1", "result": {"action": action}}])
    assert last == {"content": [{"type": "text", "text": action}]}


@pytest.mark.parametrize("code", [-32042, types.METHOD_NOT_FOUND, types.INVALID_PARAMS])
async def test_the_data_of_an_error_arrives_at_the_caller(era: str, code: int) -> None:
    """The data arrives unchanged, with any code, through raw requests and through our own client."""

    @tool
    async def refuses(ctx: BranchContext) -> str:
        await ctx.elicit(Number, "?")
        raise MCPError(code, "Go there first", {"where": ["there"]})

    user = User(lambda _, __: {"n": 1})
    async with connected(serving(refuses), era, Answers()) as client:
        one = await call_saga(client, "refuses", {})
        with pytest.raises(MCPError) as direct:
            await resume_saga(client, one["sagaToken"], accepted("refuses/elicit.1", n=1))
        with pytest.raises(MCPError) as by_client:
            await SagaClient(client, user).call_tool("refuses")
    said = types.ErrorData(code=code, message="Go there first", data={"where": ["there"]})
    assert direct.value.error == by_client.value.error == said


async def test_arguments_keep_their_order_from_turn_to_turn(era: str) -> None:
    """A tool may depend on the order: sorted arguments would make the replay differ."""

    @tool
    async def each(ctx: BranchContext, seats: dict[str, int]) -> list[str]:
        return [name for name in seats if (await ctx.elicit(Number, name)).action == "accept"]

    async with connected(serving(each), era, Answers()) as client:
        one = await call_saga(client, "each", {"seats": {"z": 1, "a": 2}})
        steps = [accepted("each/elicit.1", n=1)]
        two = await resume_saga(client, one["sagaToken"], *steps)
        last = await resume_saga(client, two["sagaToken"], *steps, accepted("each/elicit.2", n=1))
    assert last["structuredContent"] == {"result": ["z", "a"]}


@pytest.fixture
async def picky(era: str) -> AsyncGenerator[Client]:
    """Connect a client that declares elicitation without sampling."""

    @tool
    async def think(ctx: BranchContext) -> str:
        return (await ctx.sample("?")).text

    answers = Answers(lambda _: accept_form())
    async with connected(serving(think), era, answers) as client:
        yield client


async def test_a_capability_that_the_client_has_not_declared_is_not_asked(
    picky: Client, era: str
) -> None:
    if era == HANDSHAKE:
        result = await call_saga(picky, "think", {})
        assert result["isError"] is True
        assert "'sampling'" in text_in(result)
        return
    with pytest.raises(MCPError) as refused:
        await call_saga(picky, "think", {})
    assert refused.value.error.code == -32021
    assert refused.value.error.data == {"requiredCapabilities": {"sampling": {}}}


class Point(BaseModel):
    x: int
    y: int | None = None


async def nothing(ctx: BranchContext) -> None: ...
async def number(ctx: BranchContext) -> int:
    return 5


async def several(ctx: BranchContext) -> list[str]:
    return ["a", "b"]


async def maybe(ctx: BranchContext) -> Point | None:
    return Point(x=1)


async def point(ctx: BranchContext) -> Point:
    return Point(x=1)


async def fields(ctx: BranchContext) -> dict[str, int | None]:
    return {"z": None, "a": 1}


async def image(ctx: BranchContext) -> types.ImageContent:
    return types.ImageContent(type="image", data="aGk=", mime_type="image/png")


async def whole(ctx: BranchContext) -> types.CallToolResult:
    return types.CallToolResult(content=[], structured_content={"a": 1}, is_error=True)


@pytest.mark.parametrize("body", [nothing, number, several, maybe, point, fields, image, whole])
async def test_a_saga_returns_the_same_result_as_tools_call(body: Any, era: str) -> None:
    """A saga returns the same result as ``tools/call``."""
    async with connected(serving(tool(name="t")(body)), era, Answers()) as client:
        called = await raw(client, "tools/call", {"name": "t", "arguments": {}})
        saga = await call_saga(client, "t", {})
    assert saga == {key: value for key, value in called.items() if (key, value) != NO_ERROR}


NO_ERROR = ("isError", False)
