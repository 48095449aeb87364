"""``SagaClient`` against real servers: ours, and servers of other projects."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.server.mcpserver import Extension, MCPServer, MethodBinding
from pydantic import ValidationError

from anabranch import AnswerError, BranchContext, StepFailed, ToolError, tool
from anabranch.mcp import SagaClient, SagaRoundsExceededError, Turn, create_server
from anabranch.mcp._client import connect
from anabranch.mcp._saga_shapes import LooseParams
from examples.deploy import deploy
from tests.mcp.harness import ERAS, KEY, MODERN, Answers, connected, serving, text_of
from tests.mcp.tools import ANSWERED, Report, journey
from tests.sagas.harness import WAYS, Number, User, reached


def always(value: Any) -> User:
    """Return a user who gives one answer to every question."""

    def answer(step_id: str, message: str) -> Any:
        return value

    return User(answer)


def no_one() -> User:
    """Return a user for a call that asks no questions."""
    return always(None)


async def call(
    server: MCPServer[Any], user: User, name: str = "t", era: str = MODERN, **options: Any
) -> types.CallToolResult:
    async with connected(server, era, Answers()) as client:
        return await SagaClient(client, user, **options).call_tool(name)


IN_PROCESS = [way for way in WAYS if way[0] != "stdio"]
"""A client's ways; that sagas pass over the others, too, is what the tests of their methods show."""


@pytest.mark.parametrize("era", ERAS)
async def test_a_saga_client_completes_a_tool_with_every_feature(era: str, tmp_path: Any) -> None:
    """The tool uses branches, simultaneous questions, effects, a repeated form and progress."""

    def answer(_: str, message: str) -> Any:
        if message.endswith("which card?"):
            return {"number": 3 if message.startswith("left") else 30}
        if "did not fit" in message:
            return {"number": 4}
        return {"ok": True} if message.startswith("Go") else f"<{message}>"

    user, effects = User(answer), tmp_path / "effects"
    async with connected(serving(journey(effects)), era, Answers()) as client:
        result = await SagaClient(client, user).call_tool("journey", {"who": "Ida"})
    assert Report.model_validate(result.structured_content) == ANSWERED
    assert effects.read_text().split() == ["pack", "scout", "book"]
    assert user.notices == [("packing", 1, None), ("scouting", 2, None), ("done", 3, None)]


async def test_log_messages_arrive_where_the_connection_sends_them() -> None:
    user = User(lambda step, _: "No." if step == "safety" else {"target": "x"})
    server = create_server("deployer", [deploy], keys=[KEY])
    async with connect(server, user, era="modern") as client:
        result = await SagaClient(client, user).call_tool("deploy", {"version": "v"})
    assert result.is_error
    assert user.notices == [("info", "Deployment of v requested")]


async def test_all_steps_of_a_turn_are_open_at_the_same_time() -> None:
    """No question is answered before the user has seen the last one."""

    @tool(name="t")
    async def body(ctx: BranchContext) -> list[str]:
        asks = [ctx.elicit(Number, str(number), key=f"k{number}") for number in range(3)]
        return [answer.action for answer in await ctx.gather(*asks)]

    all_asked = anyio.Event()

    async def answer() -> dict[str, int]:
        if len(user.asked) == 3:
            all_asked.set()
        await all_asked.wait()
        return {"n": 1}

    user = User(lambda _step, _message: answer())
    turns: list[Turn] = []
    result = await call(serving(body), user, on_turn=turns.append)
    assert result.structured_content == {"result": ["accept"] * 3}
    assert [step["stepId"] for step in turns[0].steps] == ["k0", "k1", "k2"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("what", ["sample", "elicit"])
async def test_a_refused_step_is_completed_with_its_error(era: str, what: str) -> None:
    @tool(name="t")
    async def body(ctx: BranchContext) -> str:
        try:
            await (ctx.sample("?") if what == "sample" else ctx.elicit(Number, "?"))
        except StepFailed as problem:
            return f"{problem.error}: {problem.detail}"
        return "no error"

    user = always(AnswerError("not today", -32001))
    assert text_of(await call(serving(body), user, era=era)) == "-32001: not today"


async def test_another_exception_of_the_answerer_ends_the_call() -> None:
    @tool(name="t")
    async def body(ctx: BranchContext) -> str:
        return (await ctx.sample("?")).text

    def answer(step_id: str, message: str) -> Any:
        raise KeyError("a bug")

    with pytest.raises(KeyError):  # raised without its exception group, as `connected` does
        await call(serving(body), User(answer))


async def test_a_tools_refusal_is_a_result() -> None:
    @tool(name="t")
    async def body(ctx: BranchContext) -> str:
        raise ToolError("No seats are left.")

    result = await call(serving(body), no_one())
    assert (text_of(result), result.is_error) == ("No seats are left.", True)


@tool
async def counting(ctx: BranchContext) -> str:
    for _ in range(3):
        await ctx.elicit(Number, "?")
    return "done"


async def test_a_saga_client_gives_up_after_too_many_turns() -> None:
    user = always({"n": 1})
    assert text_of(await call(serving(counting), user, "counting", max_rounds=3)) == "done"
    with pytest.raises(SagaRoundsExceededError, match="in more than 2 turns") as raised:
        await call(serving(counting), user, "counting", max_rounds=2)
    assert raised.value.max_rounds == 2


async def test_a_saga_can_be_resumed_from_its_last_turn() -> None:
    """Another client resumes the saga on another server with the same keys."""
    turns: list[Turn] = []
    user = always({"n": 1})
    with pytest.raises(SagaRoundsExceededError):
        await call(serving(counting), user, "counting", max_rounds=2, on_turn=turns.append)
    assert [len(turn.steps) for turn in turns] == [1, 2]
    async with connected(serving(counting), MODERN, Answers()) as client:
        result = await SagaClient(client, user).resume(turns[-1])
    assert text_of(result) == "done"
    assert user.asked == ["counting/elicit.1", "counting/elicit.2", "counting/elicit.3"]


@pytest.mark.parametrize("way", IN_PROCESS, ids=" ".join)
async def test_a_server_without_sagas_is_reported_in_one_sentence(way: tuple[str, str]) -> None:
    async with reached(way, MCPServer("plain"), Path()) as client:
        with pytest.raises(MCPError) as refused:
            await SagaClient(client, no_one()).call_tool("t")
    assert refused.value.error.code == types.METHOD_NOT_FOUND
    assert refused.value.error.message == (
        "This server offers no sagas: it does not know tools/callSaga."
    )


class OfTheFirstVersion(Extension):
    """The SDK's 1.x has one error for every unknown method."""

    identifier = "com.example/first"

    def methods(self) -> list[MethodBinding]:
        return [MethodBinding("tools/callSaga", LooseParams, self.refuse)]

    async def refuse(self, context: Any, params: LooseParams) -> dict[str, Any]:
        raise MCPError(types.INVALID_PARAMS, "Invalid request parameters", "")


async def test_an_old_server_without_sagas_is_reported_in_the_same_sentence() -> None:
    with pytest.raises(MCPError, match="This server offers no sagas"):
        await call(MCPServer("old", extensions=[OfTheFirstVersion()]), no_one())


async def test_an_unrelated_error_passes_unchanged() -> None:
    with pytest.raises(MCPError, match="name: there is no tool 'nothing'"):
        await call(serving(), no_one(), "nothing")


class Odd(Extension):
    """A server of another project, which replies with a given result."""

    identifier = "com.example/odd"

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = list(replies)
        self.seen: list[Any] = []

    def methods(self) -> list[MethodBinding]:
        return [
            MethodBinding(name, LooseParams, self.reply)
            for name in ("tools/callSaga", "tools/resumeSaga")
        ]

    async def reply(self, context: Any, params: LooseParams) -> dict[str, Any]:
        self.seen.append({k: v for k, v in context.params.items() if k != "_meta"})
        return self.replies.pop(0)


def suspended(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"state": "suspended", "sagaToken": "t", "steps": list(steps)}


FORM: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    "reply",
    [
        {"state": "suspended", "steps": [{"type": "elicitation", "stepId": "a", "params": FORM}]},
        suspended({"type": "roots", "stepId": "a", "params": {}}),
        suspended({"type": "elicitation", "params": FORM}),
        suspended({"type": "elicitation", "stepId": "a", "params": {}}),
        suspended({"type": "sampling", "stepId": "a"}),
        {"state": "done"},
        {},
    ],
)
async def test_a_reply_that_is_neither_result_nor_turn_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        await call(MCPServer("odd", extensions=[Odd(reply)]), no_one())


async def test_a_server_of_another_project_receives_messages_of_the_proposal() -> None:
    step: dict[str, Any] = {"type": "elicitation", "stepId": "a", "params": FORM}
    sample: dict[str, Any] = {
        "type": "sampling",
        "stepId": "b",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Hm?"}}],
            "maxTokens": 5,
        },
    }
    odd = Odd(suspended(step, sample), {"content": [{"type": "text", "text": "done"}]})
    user = User(lambda step_id, _: {"x": 1} if step_id == "a" else "Hm.")
    assert text_of(await call(MCPServer("odd", extensions=[odd]), user)) == "done"
    reply = {"role": "assistant", "content": {"type": "text", "text": "Hm."}, "model": "m"}
    assert odd.seen == [
        {"name": "t", "arguments": {}},
        {
            "sagaToken": "t",
            "completedSteps": [
                {"stepId": "a", "result": {"action": "accept", "content": {"x": 1}}},
                {"stepId": "b", "result": reply},
            ],
        },
    ]
