"""A question of a recorded call is answered differently: the line that begins goes on like any call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from anabranch import Accepted, BranchContext, ToolError, tool
from anabranch.tool import Tool
from tests.chat.test_calls_room import accepted, later
from tests.chat.web import browsing
from tests.durable.stores import Modelled
from tests.recorded.trips import CALL, Seats, played

DONE: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def take(number: int) -> int:
    DONE.append(number)
    return number


def give_back(number: int) -> None:
    DONE.append(-number)


async def ask(ctx: BranchContext, message: str) -> int:
    answer = await ctx.elicit(Seats, message)
    return answer.content.number if isinstance(answer, Accepted) else 0


@tool
async def twice(ctx: BranchContext) -> list[int]:
    """Ask twice, and take what was said each time."""
    first = await ctx.step(take, await ask(ctx, "First?"))
    return [first, await ctx.step(take, await ask(ctx, "Second?"))]


@tool
async def unlucky(ctx: BranchContext) -> int:
    """Take one, ask, and fail for 13."""
    await ctx.step(take, 1, undo=give_back)
    if (number := await ask(ctx, "How many?")) in {3, 13}:
        raise ToolError("an unlucky number")
    return await ctx.step(take, number)


@tool
async def lucky(ctx: BranchContext) -> int:
    """Ask, and fail for 13."""
    if (number := await ask(ctx, "How many?")) == 13:
        raise ToolError("an unlucky number")
    return await ctx.step(take, number)


@asynccontextmanager
async def room(asking: Tool[Any], rounds: int) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of an application that has the tool, and a call of it whose answers were 3."""
    store = Modelled()
    try:
        await played(store, replace(later(), tool=asking, arguments={}), rounds)
    except ToolError:
        assert asking is unlucky
    DONE.clear()
    async with browsing(tools=[asking], calls=store, recorded_calls="values") as client:
        yield client


async def answered(client: httpx2.AsyncClient, name: str, step_id: str, number: int) -> Any:
    response = await client.post(f"/calls/{name}/answers", json=accepted(number, step_id))
    assert response.status_code == 200
    return (await client.get(f"/calls/{response.json()['id']}")).json()


async def test_the_next_question_of_the_line_is_answered_on_it() -> None:
    async with room(twice, 3) as client:
        line = await answered(client, CALL, "twice/elicit.1", 5)
        assert (line["state"], line["waits_for"]) == ("waiting", ["twice/elicit.2"])
        ended = await answered(client, line["id"], "twice/elicit.2", 6)
        assert (ended["id"], ended["state"], ended["value"]) == (line["id"], "done", [5, 6])
        assert (await client.get(f"/calls/{CALL}")).json()["value"] == [3, 3]
    assert DONE == [5, 6]


async def test_only_the_later_question_may_be_answered_differently() -> None:
    async with room(twice, 3) as client:
        line = await answered(client, CALL, "twice/elicit.2", 6)
        assert line["value"] == [3, 6]
    assert DONE == [6]


async def test_a_line_that_fails_is_shown_with_its_error() -> None:
    async with room(lucky, 2) as client:
        line = await answered(client, CALL, "lucky/elicit.1", 13)
        assert (line["state"], line["error"]) == ("failed", "ToolError: an unlucky number")
    assert DONE == []


async def test_a_call_whose_effects_are_undone_is_not_continued() -> None:
    async with room(unlucky, 2) as client:
        assert (await client.get(f"/calls/{CALL}")).json()["state"] == "failed"
        response = await client.post(f"/calls/{CALL}/answers", json=accepted(4, "unlucky/elicit.1"))
        assert (response.status_code, "undone" in response.json()["error"]) == (409, True)
    assert DONE == []
