"""Progress numbers of one request increase, and every text arrives, while several branches report.

Source: MCP 2026-07-28 and 2025-11-25, progress: "The progress value MUST increase with each
notification".
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import BranchContext, tool
from tests.mcp.asking import Ok
from tests.mcp.harness import ERAS, Answers, accept, connected, http, serving, text_of
from tests.randomised import examples

Numbers = Sequence[float | None]


async def counts(ctx: BranchContext, name: str, numbers: Numbers) -> None:
    for number in numbers:
        await ctx.notify(f"{name} at {number}", number, 100)


@tool
async def count(ctx: BranchContext, one: list[float | None], two: list[float | None]) -> str:
    """Report from two branches at the same time, before and after a question."""
    for name in ("before", "after"):
        await ctx.gather(
            ctx.branch(counts, f"{name}: one", one), ctx.branch(counts, f"{name}: two", two)
        )
        if name == "before":
            await ctx.elicit(Ok, "On?")
    return "counted"


async def reported(server: object, era: str, one: Numbers, two: Numbers) -> list[list[float]]:
    """Return the numbers of each request, after a check of all texts."""
    requests: list[list[float]] = [[]]
    texts: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        assert total == 100
        requests[-1].append(progress)
        texts.append(message)

    def asked(_: object) -> object:
        if era != "legacy":  # the next round is another request
            requests.append([])
        return accept(ok=True)

    async with connected(server, era, Answers(asked)) as client:
        given = {"one": list(one), "two": list(two)}
        result = await client.call_tool("count", given, progress_callback=on_progress)
    assert text_of(result) == "counted"
    expected = [
        f"{when}: {name} at {None if number is None else float(number)}"
        for when in ("before", "after")
        for name, numbers in (("one", one), ("two", two))
        for number in numbers
    ]
    assert sorted(map(str, texts)) == sorted(expected)
    return requests


def increase(numbers: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


NUMBERS = st.lists(
    st.none() | st.integers(-3, 5).map(float) | st.floats(-1e18, 1e18) | st.just(2.0**53),
    max_size=4,
)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("store", [None, "memory:"])
@examples(100, gate=10)
@given(one=NUMBERS, two=NUMBERS)
async def test_progress_increases_within_each_request_when_branches_report_at_once(
    era: str, store: str | None, one: Numbers, two: Numbers
) -> None:
    requests = await reported(serving(count, store=store), era, one, two)
    assert all(map(increase, requests))


@pytest.mark.parametrize("era", ERAS)
async def test_progress_increases_on_the_wire_when_branches_report_at_once(era: str) -> None:
    async with http(serving(count)) as url:
        requests = await reported(url, era, [10, 50, None, 100], [1, 2, 50, 3])
    assert all(map(increase, requests))
    assert len(requests[0]) >= 8


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 10**400])
@pytest.mark.parametrize("era", ERAS)
async def test_a_text_arrives_when_its_progress_is_no_json_number(era: str, number: float) -> None:
    @tool
    async def report(ctx: BranchContext) -> str:
        await ctx.notify("first", 7)
        await ctx.notify("second", number)
        return "reported"

    answers = Answers()
    async with connected(serving(report), era, answers) as client:
        await client.call_tool("report", progress_callback=answers.on_progress)
    assert [message for *_, message in answers.progress] == ["first", "second"]
    assert increase([progress for progress, *_ in answers.progress])
