"""A server at its limit of running calls refuses another call with a time to retry."""

import asyncio
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.cli import main
from anabranch.mcp import ServerOptions, create_server
from anabranch.tool import Tool
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, KEY, MODERN, Answers, accept, connected, text_of
from tests.sagas.harness import raw

FULL = "This server already runs 1 calls"
META = "anabranch/idempotency-key"


class House:
    """Tools, of which one waits until the test releases it."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.door = asyncio.Event()
        self.visits = 0

    def tools(self) -> list[Tool[Any]]:
        @tool
        async def stay(ctx: BranchContext) -> str:
            await ctx.step(self._visit)
            self.inside.set()
            await self.door.wait()
            return "out"

        @tool
        async def ask(ctx: BranchContext) -> str:
            return (await ctx.elicit(Ok, "Well?")).action

        return [stay, ask]

    async def _visit(self) -> None:
        self.visits += 1


def server_of(house: House, **options: Any) -> Any:
    return create_server("s", house.tools(), keys=[KEY], max_running=1, **options)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_beyond_the_limit_is_refused_before_it_runs(era: str) -> None:
    house = House()
    async with connected(server_of(house), era) as client:
        first = asyncio.create_task(client.call_tool("stay"))
        await house.inside.wait()
        refused = await client.call_tool("stay")
        assert (refused.is_error, house.visits) == (True, 1)
        assert FULL in text_of(refused)
        assert "call the tool again in 5 s" in text_of(refused)
        house.door.set()
        assert text_of(await first) == text_of(await client.call_tool("stay")) == "out"


async def test_an_answer_is_not_refused() -> None:
    """A waiting call does not run, and its answer must be able to finish it."""
    house, running = House(), list[asyncio.Task[Any]]()

    async def answer(_: Any) -> Any:
        running.append(asyncio.create_task(client.call_tool("stay")))
        await house.inside.wait()
        return accept(ok=True)

    async with connected(server_of(house), MODERN, Answers(answer)) as client:
        assert text_of(await client.call_tool("ask")) == "accept"
        house.door.set()
        assert text_of(await running[0]) == "out"


async def test_a_request_repeated_under_its_key_waits_for_its_call() -> None:
    house = House()
    wanted = {"name": "stay", "arguments": {}, "_meta": {META: "k-1"}}
    async with connected(server_of(house, store="memory:"), MODERN) as client:
        first = asyncio.create_task(raw(client, "tools/call", wanted))
        await house.inside.wait()
        again = asyncio.create_task(raw(client, "tools/call", wanted))
        refused = await client.call_tool("stay")
        assert FULL in text_of(refused)
        house.door.set()
        assert (await first)["content"] == (await again)["content"]
        assert house.visits == 1


def test_a_limit_of_no_calls_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="max_running must be 1 or more"):
        ServerOptions(max_running=0)
    assert main(["serve", "nowhere.py", "--max-running", "0"]) == 2
    assert "for --max-running. Give a number from 1 up." in capsys.readouterr().err
