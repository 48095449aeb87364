"""The types that mypy and pyright infer for an author's code; pytest runs the same code.

A wrong call carries the checkers' own ignore comments. Both checkers report an unnecessary comment, so a
wrong call that becomes allowed fails the gate.
"""

from collections.abc import Awaitable, Callable
from typing import Any, assert_type

from pydantic import BaseModel

from anabranch import (
    Accepted,
    BranchContext,
    Cancelled,
    Declined,
    Elicitation,
    HandoffTool,
    SampleResult,
    run_tool,
    tool,
)
from anabranch.chat import PluginRequest, make_plugin
from anabranch.testing import MockClient
from anabranch.tool import Op, Tool


class Confirm(BaseModel):
    ok: bool


class Verdict(BaseModel):
    score: int


CONFIRM = Elicitation("confirm", Confirm)


async def analyze(ctx: BranchContext, what: str, depth: int) -> list[str]:
    return [what] * depth


async def alone(ctx: BranchContext) -> float:
    return 1.5


def reserve(seat: int) -> str:
    return f"seat {seat}"


async def confirm(seat: int, name: str) -> bool:
    return True


def release(seat: str) -> None: ...


async def wrong(request: PluginRequest[Confirm]) -> Accepted[Verdict]:
    return Accepted(Verdict(score=1))


@tool
async def search(ctx: BranchContext, city: str, budget: int = 500) -> list[str]:
    return [city]


@tool(elicits=[CONFIRM], name="other")
async def with_options(ctx: BranchContext) -> Verdict:
    return Verdict(score=1)


class Phases(HandoffTool):
    """Three phases."""

    def __init__(self, n: int) -> None:
        self.n = n

    async def before(self) -> int:
        return self.n

    async def client(self, handoff: int, ctx: BranchContext) -> int:
        return handoff

    async def after(self, handoff: int, picked: int) -> int:
        return picked


def willing() -> MockClient:
    return MockClient(
        samples=lambda request: '{"score": 1}' if request.system_prompt or request.tools else "x",
        elicits=lambda _: {"ok": True},
    )


async def test_an_answer_has_the_type_of_its_question() -> None:
    @tool
    async def outer(ctx: BranchContext) -> bool:
        declared = await ctx.elicit(CONFIRM, "?")
        assert_type(declared, Accepted[Confirm] | Declined | Cancelled)
        bare = await ctx.elicit(Confirm, "?", context={"n": 1}, key="k")
        assert_type(bare, Accepted[Confirm] | Declined | Cancelled)
        url = await ctx.elicit_url("go", "https://example.org")
        assert_type(url, Accepted[None] | Declined | Cancelled)
        assert isinstance(declared, Accepted)
        assert_type(declared.content, Confirm)
        return declared.content.ok

    assert await run_tool(outer, {}, willing())


async def test_a_marker_says_yes_or_no() -> None:
    @tool
    async def outer(ctx: BranchContext) -> bool:
        way = await ctx.patched("limit")
        assert_type(way, bool)
        return way

    assert await run_tool(outer, {}, willing())


async def test_a_question_by_key_can_be_of_any_type() -> None:
    @tool(elicits=[CONFIRM])
    async def outer(ctx: BranchContext) -> bool:
        answer = await ctx.elicit("confirm", "?")
        assert_type(answer, Accepted[Any] | Declined | Cancelled)
        return isinstance(answer, Accepted)

    assert await run_tool(outer, {}, willing())


async def test_a_sample_with_a_schema_has_its_type() -> None:
    @tool
    async def outer(ctx: BranchContext) -> int:
        assert_type(
            await ctx.converse("hello", tools=[search], temperature=0.5), SampleResult[None]
        )
        plain = await ctx.sample("hello")
        assert_type(plain, SampleResult[None])
        result = await ctx.sample("judge", schema=Verdict)
        assert_type(result, SampleResult[Verdict])
        assert_type(result.parsed, Verdict)
        return result.parsed.score

    assert await run_tool(outer, {}, willing()) == 1


async def test_a_sample_with_another_type_than_a_model_has_that_type() -> None:
    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        result = await ctx.sample("list", schema=list[str])
        assert_type(result, SampleResult[list[str]])
        return result.parsed

    assert await run_tool(outer, {}, MockClient(samples=['["a"]'])) == ["a"]


async def test_gather_is_a_typed_tuple_and_race_a_union() -> None:
    @tool
    async def outer(ctx: BranchContext) -> int:
        pair = await ctx.gather(ctx.branch(alone), ctx.step(reserve, 1))
        assert_type(pair, tuple[float, str])
        triple = await ctx.gather(ctx.branch(alone), ctx.step(confirm, 1, "x"), ctx.sample("x"))
        assert_type(triple, tuple[float, bool, SampleResult[None]])
        many = await ctx.gather(*(ctx.step(reserve, n) for n in range(7)))
        assert_type(many, tuple[str, ...])
        winner = await ctx.race(ctx.branch(alone), ctx.step(reserve, 1))
        assert_type(winner, float | str)
        first = await ctx.race(*(ctx.step(reserve, n) for n in range(3)))
        assert_type(first, str)
        return len(many)

    assert await run_tool(outer, {}, willing()) == 7


async def wrong_calls(ctx: BranchContext) -> None:
    """Hold the calls that the type checkers must refuse; nothing runs this function."""
    await ctx.branch(analyze, "x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await ctx.branch(analyze, 2, "x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await ctx.branch(alone, 1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await ctx.step(reserve, "x")  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.step(reserve, 1, undo=confirm)  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType]
    await search(ctx)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    await search(ctx, "Rome", badget=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    await ctx.elicit(int, "?")  # type: ignore[type-var] # pyright: ignore[reportCallIssue, reportArgumentType]
    await ctx.sample("?", schema="int")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    make_plugin(search).on(CONFIRM, wrong)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    await ctx.log("loud", "x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    answer = await ctx.elicit(CONFIRM, "?")
    str(answer.content)  # type: ignore[union-attr] # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


async def test_a_branch_has_its_functions_type_and_checks_its_arguments() -> None:
    @tool
    async def outer(ctx: BranchContext) -> int:
        assert_type(await ctx.branch(analyze, "x", 2, timeout=3), list[str])
        assert_type(await ctx.branch(alone, name="n", tools=[search]), float)
        return 1

    assert await run_tool(outer, {}, willing()) == 1


async def test_a_step_has_its_functions_type_sync_or_async() -> None:
    @tool
    async def outer(ctx: BranchContext) -> bool:
        assert_type(await ctx.step(reserve, 1, undo=release), str)
        assert_type(await ctx.step(confirm, 1, "x"), bool)
        return True

    assert await run_tool(outer, {}, willing())


async def test_a_tool_has_the_signature_and_the_type_of_its_function() -> None:
    as_tool: Tool[list[str]] = search
    assert_type(await run_tool(search, {"city": "Rome"}), list[str])
    assert_type(await run_tool(with_options), Verdict)

    @tool
    async def outer(ctx: BranchContext) -> int:
        assert_type(await search(ctx, "Rome"), list[str])
        assert_type(await search(ctx, city="Rome", budget=3), list[str])
        return 1

    assert await run_tool(outer) == 1
    assert as_tool is search


async def test_a_called_tool_has_its_type() -> None:
    @tool
    async def outer(ctx: BranchContext) -> int:
        assert_type(await ctx.call_tool(search, city="Rome"), list[str])
        assert_type(await ctx.call_tool(with_options), Verdict)
        return (await ctx.call_tool(with_options)).score

    assert await run_tool(outer, {}, willing()) == 1


async def test_operations_can_be_stored_passed_on_and_started_as_tasks() -> None:
    @tool
    async def outer(ctx: BranchContext) -> str:
        operation: Op[str] = ctx.step(reserve, 1)
        later: Callable[[], Awaitable[float]] = lambda: ctx.branch(alone)  # noqa: E731
        await later()
        return await operation

    assert await run_tool(outer, {}, willing()) == "seat 1"


async def test_a_handoff_tool_is_its_own_class() -> None:
    made = Phases(3)
    assert_type(made, Phases)
    assert made.n == 3
    assert await run_tool(made) == 3
