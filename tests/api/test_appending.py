"""``ctx.append`` adds messages from elsewhere to a branch's conversation."""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, assistant, tool, user
from anabranch.testing import MockClient, run_tool


class Seat(BaseModel):
    row: int


async def test_a_text_is_appended_in_its_role(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        ctx.append("The weather: rain.")
        ctx.append("Noted.", role="assistant")
        assert ctx.messages == (user("The weather: rain."), assistant("Noted."))
        return (await ctx.sample("What now?")).text

    client = MockClient(samples=["Take a coat."])
    assert await run_tool(ask, {}, client, replay=replay) == "Take a coat."
    sent = client.sample_calls[0].messages
    assert sent == (user("The weather: rain."), assistant("Noted."), user("What now?"))


async def test_answers_and_words_of_another_branch_are_appended_as_exchanges(replay: bool) -> None:
    async def elsewhere(ctx: BranchContext) -> str:
        return (await ctx.sample("Which side?")).text

    @tool
    async def ask(ctx: BranchContext) -> list[str]:
        answer = await ctx.elicit(Seat, "Which row?")
        assert isinstance(answer, Accepted)
        ctx.append(answer.exchange)
        side = await ctx.branch(elsewhere, inherit_messages=False)
        ctx.append([{"role": "user", "content": "And the side?"}, assistant(side)])
        reply = await ctx.sample("Summarise.")
        assert [message.role for message in ctx.messages] == ["assistant", "user"] + [
            "user",
            "assistant",
        ] * 2
        return [message.text for message in reply.exchange]

    client = MockClient(samples=["left", "3, left"], elicits=[{"row": 3}])
    assert await run_tool(ask, {}, client, replay=replay) == ["Summarise.", "3, left"]
    assert [len(request.messages) for request in client.sample_calls] == [1, 5]


async def test_appended_messages_follow_the_order_of_the_program(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> list[str]:
        late = ctx.sample("First?")
        ctx.append(user("Second."))
        await late
        return [message.text for message in ctx.messages]

    said = await run_tool(ask, {}, MockClient(samples=["First."]), replay=replay)
    assert said == ["First?", "First.", "Second."]


async def test_messages_appended_in_a_branch_stay_there(replay: bool) -> None:
    """A branch's messages must not reach the conversation around the branch."""

    async def inside(ctx: BranchContext) -> int:
        ctx.append("a secret")
        return len(ctx.messages)

    @tool
    async def ask(ctx: BranchContext) -> list[int]:
        ctx.append("hello")
        return [await ctx.branch(inside), len(ctx.messages)]

    assert await run_tool(ask, {}, MockClient(), replay=replay) == [2, 1]


@pytest.mark.parametrize(
    ("said", "role", "problem"),
    [
        ("hello", "system", "role"),
        ({"role": "user"}, None, "content"),
        ([{"role": "tool", "content": "x"}], None, "role"),
        (user("hello"), "user", "role= only with a text"),
        (5, None, "append"),
    ],
)
async def test_append_refuses_any_value_but_a_message(said: Any, role: Any, problem: str) -> None:
    @tool
    async def ask(ctx: BranchContext) -> None:
        with pytest.raises(ValueError, match=problem) as refused:
            ctx.append(said, role)
        assert "\n" not in str(refused.value)
        assert ctx.messages == ()

    await run_tool(ask, {}, MockClient())
