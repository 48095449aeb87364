"""Law 3: a notification is delivered once, for any program and any number of rounds."""

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from anabranch import BranchContext, tool
from anabranch.testing import MockClient, run_tool
from tests.randomised import examples

# A program is a list of acts: notify, ask, or run acts in a branch or concurrently.
Act: TypeAlias = "str | tuple[str, list[Act]]"
acts: st.SearchStrategy[list[Act]] = st.recursive(
    st.lists(st.sampled_from(["log", "notify", "ask", "step"]), max_size=4),
    lambda inner: st.lists(
        st.sampled_from(["log", "ask"]) | st.tuples(st.sampled_from(["branch", "gather"]), inner),
        max_size=4,
    ),
    max_leaves=8,
)


def said(program: list[Act], place: str) -> list[str]:
    """Return the notices of the program by the model; each sentence contains its place."""
    sentences: list[str] = []
    for number, act in enumerate(program):
        here = f"{place}.{number}"
        if act in ("log", "notify"):
            sentences.append(here)
        elif isinstance(act, tuple):
            ways = ["a", "b"] if act[0] == "gather" else ["a"]
            for way in ways:
                sentences += said(act[1], f"{here}{way}")
    return sentences


async def perform(ctx: BranchContext, program: list[Act], place: str) -> None:
    """Run the program for real."""
    for number, act in enumerate(program):
        here = f"{place}.{number}"
        if act == "log":
            await ctx.log("info", here)
        elif act == "notify":
            await ctx.notify(here)
        elif act == "ask":
            await ctx.elicit_url(here, "https://example.org")
        elif act == "step":
            await ctx.step(str, here)
        elif act[0] == "branch":
            await ctx.branch(perform, list(act[1]), f"{here}a")
        else:
            await ctx.gather(
                ctx.branch(perform, list(act[1]), f"{here}a"),
                ctx.branch(perform, list(act[1]), f"{here}b"),
            )


@examples(60, gate=30)
@given(program=acts, replay=st.booleans())
async def test_each_notice_of_a_program_is_delivered_once(program: list[Act], replay: bool) -> None:
    """Law 3, property-based."""

    @tool
    async def outer(ctx: BranchContext) -> None:
        await perform(ctx, program, "p")

    client = MockClient(elicits=lambda _: {})
    await run_tool(outer, {}, client, replay=replay)
    heard = [call.message for call in client.log_calls]
    heard += [call.message for call in client.notify_calls]
    assert sorted(heard) == sorted(said(program, "p"))
