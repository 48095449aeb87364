"""A client cannot compute a tool's random numbers from the values that it sees."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._aio import SystemIds
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, Answers, accept, connected, serving


@tool
async def link(ctx: BranchContext) -> list[str]:
    drawn = [str(ctx.uuid()), str(ctx.random.random())]
    await ctx.elicit(Ok, "Go on?")
    return [*drawn, str(ctx.uuid()), str(ctx.random.random()), ctx.call_id]


async def drawn(server: Any, era: str) -> list[str]:
    async with connected(server, era, Answers(lambda _: accept(ok=True))) as client:
        result = await client.call_tool("link", {})
    values: list[str] = result.structured_content["result"] if result.structured_content else []
    return values


def _same_name(_: SystemIds) -> str:
    return "call_1"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("stored", [False, True])
async def test_calls_with_one_id_draw_different_numbers(
    era: str, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemIds, "call_id", _same_name)
    found: list[list[str]] = []
    for number in range(2):
        options = {"store": f"sqlite:///{tmp_path}/{number}.db"} if stored else {}
        found.append(await drawn(serving(link, **options), era))
    first, second = found
    assert first[-1] == second[-1] == "call_1"
    assert not set(first[:-1]) & set(second[:-1])
    assert len({uuid.UUID(first[0]), uuid.UUID(first[2])}) == 2
