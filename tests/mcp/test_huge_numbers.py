"""Numbers of hundreds and of thousands of digits, as answers and as arguments, over every edge."""

from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from tests.mcp.harness import ERAS, HANDSHAKE, MODERN, Answers, connected, http, serving, text_of
from tests.sagas.harness import call_saga, resume_saga


class Amount(BaseModel):
    count: int = 1
    share: float = 0.5


@tool
async def asks(ctx: BranchContext) -> int:
    """Ask twice, so that the journal records the first answer."""
    answers = [await ctx.elicit(Amount, "How many?") for _ in range(2)]
    return len(str(answers[0].content.count)) if isinstance(answers[0], Accepted) else 0


@tool
async def takes(ctx: BranchContext, count: int, share: float = 0.5) -> int:
    """Take a number, and ask, so that the journal records the number."""
    await ctx.elicit(Amount, "How many more?")
    return len(str(count))


HUGE: list[dict[str, Any]] = [
    {"count": 10**5000},
    {"count": -(10**5000)},
    {"count": 1, "share": 10**5000},
    {"count": 1, "share": 1e308 * 10},
    {"count": 1, "share": 10**400},
]
"""What no field takes: Python does not write the first three, and no float is that large."""


def answering(content: dict[str, Any]) -> Answers:
    return Answers(lambda _: types.ElicitResult(action="accept", content=content))


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("era", ERAS)
async def test_hundreds_of_digits_are_a_number_like_any_other(era: str, store: str | None) -> None:
    answers = answering({"count": 10**400})
    async with connected(serving(asks, takes, store=store), era, answers) as client:
        assert text_of(await client.call_tool("asks", {})) == "401"
        assert text_of(await client.call_tool("takes", {"count": 10**400})) == "401"


@pytest.mark.parametrize("store", [None, "memory:"])
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("content", HUGE, ids=range(len(HUGE)))
async def test_a_number_that_cannot_be_recorded_is_asked_for_again(
    content: dict[str, Any], era: str, store: str | None
) -> None:
    async with connected(serving(asks, takes, store=store), era, answering(content)) as client:
        asked = await client.call_tool("asks", {})
        assert asked.is_error
        assert "did not fit after 4 attempts" in text_of(asked)
        taken = await client.call_tool("takes", content)
        assert taken.is_error
        # Infinity crosses as null, so that the parameter is missing.
        asked_for = "did not fit" if content is HUGE[3] else "Invalid arguments for tool 'takes'"
        assert asked_for in text_of(taken)


async def test_a_saga_asks_again_when_a_number_is_no_float() -> None:
    assert "did not fit after 4 attempts" in (await answered_saga(HUGE[4]))["content"][0]["text"]


async def test_an_infinite_number_of_a_saga_leaves_its_field_empty() -> None:
    """Infinity crosses as null."""
    assert (await answered_saga(HUGE[3]))["content"][0]["text"] == "1"


@pytest.mark.parametrize("content", HUGE[:3], ids=range(3))
async def test_a_saga_refuses_a_request_with_one_that_is_too_long(content: dict[str, Any]) -> None:
    with pytest.raises(MCPError, match="a number has at most 4300 digits"):
        await answered_saga(content)


async def answered_saga(content: dict[str, Any]) -> dict[str, Any]:
    async with connected(serving(asks, takes), MODERN) as client:
        saga = await call_saga(client, "asks", {})
        steps: list[dict[str, Any]] = []
        while "sagaToken" in saga:
            result = {"action": "accept", "content": content}
            steps += [{"stepId": step["stepId"], "result": result} for step in saga["steps"]]
            saga = await resume_saga(client, saga["sagaToken"], *steps)
        return saga


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_server_over_http_continues_after_a_huge_number(era: str) -> None:
    async with http(serving(takes)) as url, connected(url, era, answering({})) as client:
        for content in HUGE[4:]:
            assert (await client.call_tool("takes", content)).is_error
        assert text_of(await client.call_tool("takes", {"count": 10**400})) == "401"
