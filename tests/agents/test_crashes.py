"""A turn that forks, uses tools and asks is stopped at each use of the store.

The test cancels the turn, as Ctrl-C does, so that the turn can clean up. Or it kills the turn, which can
then write nothing more. In both cases the thread can be continued.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.agents._branch_self_tool import PLACEHOLDER
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, text_of
from anabranch.testing import calls
from anabranch.tree import TreeStore
from tests.agents.harness import Answering, Setting, heard, results_in, set_up
from tests.agents.memory import MemoryTrees


class Killed(BaseException):
    """The process has ended."""


class Doomed:
    """A store that runs a function before or after one of its calls."""

    def __init__(self, fate: Callable[[], Awaitable[None]], at: int, *, after: bool) -> None:
        self.store = MemoryTrees()
        self.touched = 0
        self._fate = fate
        self._at = at
        self._after = after
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        async def touch(*args: Any, **options: Any) -> Any:
            if self._dead:
                raise Killed
            self.touched += 1
            doomed = self.touched == self._at
            if doomed and not self._after:
                await self._meet_fate()
            value = await method(*args, **options)
            if doomed and self._after:
                await self._meet_fate()
            return value

        return touch

    async def _meet_fate(self) -> None:
        try:
            await self._fate()
        except Killed:
            self._dead = True
            raise


class Yes(BaseModel):
    sure: bool


@tool
async def check(ctx: BranchContext) -> str:
    return (await ctx.elicit(Yes, "Sure?")).action


def decide(request: SampleRequest) -> SampleReply | str:
    """Fork twice, with a tool that asks next to the forks and a tool that asks in a branch."""
    text, results = heard(request), results_in(request.messages[-1].content)
    if text == "fork":
        prompts = {"prompts": ["a", "b", "c"], "allow_work": True, "recombine": "llm_vote"}
        return calls(("f", "branch_self", prompts), ("q", "check", {}), text="several ways")
    if text == "(self-prompt): a":
        return calls(("g", "branch_self", {"prompts": ["x", "y"], "parallel": False}))
    if text == "(self-prompt): b":
        return calls(("p", "check", {}))
    return "2" if "Reply with its number" in text else f"{len(results)} results"


async def run(fate: Callable[[], Awaitable[None]], at: int, *, after: bool) -> tuple[Doomed, int]:
    """Run the turn to its end; return its store, and the number of calls to the store."""
    store = Doomed(fate, at, after=after)
    user = Answering(lambda _: ElicitReply(action="accept", content={"sure": True}))
    here = await set_up(decide, tools=[check], store=cast("TreeStore", store), user=user)
    turn = asyncio.current_task()
    assert turn is not None
    try:
        await here.say("fork")
    except (asyncio.CancelledError, Killed):
        while turn.cancelling():
            turn.uncancel()
    return store, store.touched


async def is_sound(store: MemoryTrees) -> None:
    """Check that the thread is valid and complete: no branch is missing, and no placeholder is left."""
    here = await set_up(lambda _: "hello again", store=store)
    threads = await store.threads(9)
    for thread in threads:
        here.thread_id = thread.id
        tree = await here.check()
        for caller in tree.nodes:
            below = [each for each in tree.nodes if each.parent_id == caller.id]
            opened = [each for each in below if each.kind == "branch"]
            forks = [use for use in caller.tool_uses if use.name == "branch_self"]
            assert len(opened) in {0, sum(len(cast("Any", f.input["prompts"])) for f in forks)}
        for leaf in await _main_leaves(here):
            end = await here.say("hello?", at=leaf)
            path = await store.path(end.id)
            shown = [r.content for key, r in path.results.items() if key[0] in _main(path.nodes)]
            assert PLACEHOLDER not in map(text_of, shown)
        await here.check()


def _main(nodes: Any) -> set[str]:
    """Return the ids of the path's nodes before the path enters a branch."""
    ids = [node.id for node in nodes if node.kind != "branch"]
    return set(ids) if len(ids) == len(nodes) else set()


async def _main_leaves(here: Setting) -> list[str | None]:
    head = await here.agent.head(here.thread_id)
    questions = [node.id for node in await here.of_kind("question") if node.id != head]
    return [head, *questions]


async def cancel_turn() -> None:
    """Cancel the test's task, which runs the turn, and let the cancellation run."""
    [turn] = [task for task in asyncio.all_tasks() if task.get_name() == "the turn"]
    turn.cancel()
    await asyncio.sleep(0)


async def kill() -> None:
    raise Killed


@pytest.mark.parametrize("fate", [cancel_turn, kill], ids=["cancelled", "killed"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_turn_can_be_stopped_wherever_it_touches_the_store(
    fate: Callable[[], Awaitable[None]], after: bool
) -> None:
    whole, touched = await run(fate, -1, after=after)
    await is_sound(whole.store)
    assert touched >= 30
    for at in range(2, touched + 1):
        turn = asyncio.create_task(run(fate, at, after=after), name="the turn")
        store, _ = await turn
        await is_sound(store.store)
