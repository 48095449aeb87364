"""The server sends progress to a handshake-era client while the user thinks.

Source: MCP 2025-11-25, progress and timeouts: a client may restart its timeout at progress.
"""

import asyncio
from typing import Any

import anyio
import mcp_types as types
import pytest

from anabranch import BranchContext, tool
from anabranch.mcp import create_server
from anabranch.mcp._client import call_tool, connect
from anabranch.testing import ManualClock, MockClient
from tests.mcp.asking import Ok
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, accept, connected, serving, text_of
from tests.patience import PATIENCE


@tool
async def ask(ctx: BranchContext) -> str:
    """Ask the user, and report progress before and after."""
    await ctx.notify("before")
    answer = await ctx.elicit(Ok, "Ok?")
    await ctx.notify("after")
    return answer.action


@tool
async def ask_twice(ctx: BranchContext) -> str:
    one, two = await ctx.gather(ctx.elicit(Ok, "One?"), ctx.elicit(Ok, "Two?"))
    return f"{one.action} {two.action}"


class Thinking:
    """A user who answers when the test allows it, and a client whose timeout restarts at progress."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.arrived = asyncio.Event()
        self.last_sign = clock.now()
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def elicit(self, _: Any) -> types.ElicitResult:
        self.asked.set()
        await self.answer.wait()
        return accept(ok=True)

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.last_sign = self.clock.now()
        self.progress.append((progress, total, message))
        self.arrived.set()

    async def think(self, seconds: int) -> None:
        """Let time pass, and wait for the progress message of each quarter of a minute."""
        await self.asked.wait()
        for _ in range(seconds // 15):
            await settled()
            self.arrived.clear()
            self.clock.advance(15)
            with anyio.fail_after(PATIENCE):
                await self.arrived.wait()
            assert self.clock.now() - self.last_sign < 60, "the client has given up"


async def settled() -> None:
    """Let all tasks run: after the last progress message, the server sets its next alarm."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_client_whose_timeout_restarts_at_progress_waits_as_long_as_needed() -> None:
    clock = ManualClock()
    user = Thinking(clock)
    answers = Answers(user.elicit)
    async with connected(serving(ask, clock=clock), HANDSHAKE, answers) as client:
        call = asyncio.create_task(client.call_tool("ask", progress_callback=user.on_progress))
        await user.think(300)
        user.answer.set()
        assert text_of(await call) == "accept"
        numbers = [progress for progress, *_ in user.progress]
        assert numbers == sorted(set(numbers))  # as the protocol requires
        assert [message for *_, message in user.progress] == ["before", *[None] * 20, "after"]
        clock.advance(600)
        await settled()
        assert len(user.progress) == 22  # no progress after the end of the call


async def test_two_questions_share_the_progress_messages() -> None:
    clock = ManualClock()
    user = Thinking(clock)
    async with connected(
        serving(ask_twice, clock=clock), HANDSHAKE, Answers(user.elicit)
    ) as client:
        call = asyncio.create_task(
            client.call_tool("ask_twice", progress_callback=user.on_progress)
        )
        await user.think(60)
        user.answer.set()
        assert text_of(await call) == "accept accept"
        assert len(user.progress) == 4


async def test_the_heartbeat_interval_can_be_set_or_turned_off() -> None:
    clock = ManualClock()
    user = Thinking(clock)
    server = serving(ask, clock=clock, heartbeat=None)
    async with connected(server, HANDSHAKE, Answers(user.elicit)) as client:
        call = asyncio.create_task(client.call_tool("ask", progress_callback=user.on_progress))
        await user.asked.wait()
        await settled()
        clock.advance(300)
        await settled()
        user.answer.set()
        await call
    assert [message for *_, message in user.progress] == ["before", "after"]


@pytest.mark.parametrize("heartbeat", [0, -1, float("nan"), float("inf")])
def test_an_impossible_interval_is_refused(heartbeat: float) -> None:
    with pytest.raises(ValueError, match="heartbeat must be a positive number of seconds"):
        create_server("test", [ask], heartbeat=heartbeat)


async def test_without_a_progress_token_nothing_is_sent() -> None:
    clock = ManualClock()
    user = Thinking(clock)
    unwanted: list[Any] = []

    async def message(received: Any) -> None:
        if isinstance(received, types.ProgressNotification):
            unwanted.append(received)

    answers = Answers(user.elicit)
    async with connected(
        serving(ask, clock=clock), HANDSHAKE, answers, message_handler=message
    ) as client:
        call = asyncio.create_task(client.call_tool("ask"))
        await user.asked.wait()
        await settled()
        clock.advance(60)
        await settled()
        user.answer.set()
        assert text_of(await call) == "accept"
    assert unwanted == []


async def test_a_stateless_round_sends_no_heartbeat() -> None:
    """The client has its reply while the user thinks."""
    clock = ManualClock()
    answers = Answers(lambda _: accept(ok=True))
    async with connected(serving(ask, clock=clock), MODERN, answers) as client:
        assert text_of(await client.call_tool("ask")) == "accept"


async def test_our_client_does_not_show_heartbeats() -> None:
    clock = ManualClock()
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly(_: Any) -> Ok:
        asked.set()
        await answer.wait()
        return Ok(ok=True)

    user = MockClient(elicits=[slowly])
    async with connect(serving(ask, clock=clock), user, era="handshake") as client:
        call = asyncio.create_task(call_tool(client, "ask", {}, user))
        await asked.wait()
        await settled()
        clock.advance(15)
        await settled()
        answer.set()
        await call
    assert [notified.message for notified in user.notify_calls] == ["before", "after"]
