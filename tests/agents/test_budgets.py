"""Every schedule of a turn keeps its budgets: settled and reserved tokens fit.

A turn, its stored folding branches, forks of these, and tools with their own limits spend at the same
time. The test decides which open request is answered next, and how.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch import BranchContext, Limits, tool
from anabranch._asking import estimate_tokens, prompt_tokens, said
from anabranch._budget import Account
from anabranch._engine import current_call
from anabranch.agents import (
    Agent,
    BranchSelf,
    Folding,
    Timeline,
    TurnLimitError,
    TurnLimits,
    turn_of,
)
from anabranch.folding import Branch, BranchService, FoldingSettings
from anabranch.messages import SampleReply, SampleRequest, TextBlock, Usage
from anabranch.models import SampleStream
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, calls
from tests.agents.harness import fork
from tests.agents.memory import MemoryTrees
from tests.randomised import examples

SETTINGS = FoldingSettings(default_budget=300, max_budget=900, max_depth=2)


class Whole:
    def __init__(self, reply: SampleReply) -> None:
        self.reply = reply

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        raise StopAsyncIteration


class Open:
    def __init__(self, request: SampleRequest) -> None:
        self.request = request
        self.reply: asyncio.Future[SampleReply] = asyncio.get_running_loop().create_future()


class Gate:
    """A model whose requests the test answers one at a time."""

    def __init__(self) -> None:
        self.open: list[Open] = []
        self.beyond = 0

    async def sample(self, request: SampleRequest) -> SampleReply:
        this = Open(request)
        self.open.append(this)
        try:
            return await this.reply
        finally:
            if this in self.open:
                self.open.remove(this)

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        yield Whole(await self.sample(request))

    def answer(self, this: Open, reply: SampleReply, *, reports: bool) -> None:
        """Give a reply; record by how much it is longer than its request allowed."""
        output = estimate_tokens(said(reply))
        if reports:
            usage = Usage(input_tokens=prompt_tokens(this.request), output_tokens=output)
            reply = reply.model_copy(update={"usage": usage})
        self.beyond += max(0, output - this.request.max_tokens)
        self.open.remove(this)
        this.reply.set_result(reply)


def text(words: int) -> SampleReply:
    block = TextBlock(text="word " * words + ".")
    return SampleReply(model="gate", content=(block,), stop_reason="endTurn")


def create(*budgets: int | None) -> SampleReply:
    task = {"description": "count", "prompt": "Please count."}
    return calls(
        *(
            (f"c{at}", "branch_create", task if budget is None else {**task, "budget": budget})
            for at, budget in enumerate(budgets)
        )
    )


def forks(prompts: int) -> SampleReply:
    parts = (f"part {at}" for at in range(prompts))
    return fork(*parts, allow_work=True, parallel=True)


class Budgets(RuleBasedStateMachine):
    """One conversation, whose turns follow one another."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.turn: asyncio.Task[object] | None = None
        self.of_tools: list[Account] = []

    @initialize(
        most=st.sampled_from([None, 6_000, 15_000, 40_000]),
        reply=st.sampled_from([40, 150, 1_000]),
        own=st.sampled_from([None, 100, 400]),
    )
    def begin(self, most: int | None, reply: int, own: int | None) -> None:
        @tool(requires=["sampling"], limits=Limits(max_tokens=own))
        async def ask(ctx: BranchContext, questions: int) -> str:
            """Ask several questions at the same time."""
            self.of_tools.append(current_call().scheduler.scope().branch.account)
            await ctx.gather(
                *(ctx.sample(f"question {at}", max_tokens=80) for at in range(questions))
            )
            return "asked"

        self.model, clock = Gate(), ManualClock()
        self.branches = BranchService(open_branch_store("memory:"), settings=SETTINGS, clock=clock)
        self.agent = Agent(
            MemoryTrees(),
            self.model,
            tools=[Folding(self.branches), BranchSelf(), ask],
            limits=TurnLimits(max_tokens=most, max_reply_tokens=reply, max_requests=12),
            clock=clock,
        )
        self.thread = self.loop.run_until_complete(self.agent.begin())
        self.say()

    @rule()
    @precondition(lambda self: self.turn is not None and self.turn.done())
    def say(self) -> None:
        self.the_turn_has_ended_well()
        self.loop.run_until_complete(self.start())
        self.resume()

    async def start(self) -> None:
        parent = await self.agent.head(self.thread.id)
        [message] = await self.agent.put(self.thread.id, [(parent, "Go on.")])
        turn = await turn_of(self.agent, message)
        self.timeline: Timeline = turn.timeline
        self.model.beyond, self.of_tools = 0, []
        self.before = {each.id for each in await self.branches.branches(self.thread.id)}
        self.turn = asyncio.ensure_future(turn.run(await self.agent.store.path(message.id)))

    def resume(self) -> None:
        """Let the turn run until it waits for the model, or has ended."""

        async def until_it_waits() -> None:
            assert self.turn is not None
            for _ in range(40):
                await asyncio.sleep(0)
            while not self.model.open and not self.turn.done():  # noqa: ASYNC110 - many events
                await asyncio.sleep(0)  # the stores use threads

        self.loop.run_until_complete(until_it_waits())

    def reply(self, which: int, reply: SampleReply, *, reports: bool) -> None:
        if self.model.open:
            this = self.model.open[which % len(self.model.open)]
            if this.request.messages[-1].text.startswith("question"):
                reply = text(which * 20)
            self.model.answer(this, reply, reports=reports)
        self.resume()

    @rule(which=st.integers(0, 9), words=st.integers(1, 400), reports=st.booleans())
    def say_something(self, which: int, words: int, reports: bool) -> None:
        self.reply(which, text(words), reports=reports)

    @rule(
        which=st.integers(0, 9),
        budgets=st.lists(st.none() | st.integers(20, 900), min_size=1, max_size=3),
    )
    def create(self, which: int, budgets: list[int | None]) -> None:
        self.reply(which, create(*budgets), reports=False)

    @rule(which=st.integers(0, 9), prompts=st.integers(1, 3), reports=st.booleans())
    def fork(self, which: int, prompts: int, reports: bool) -> None:
        self.reply(which, forks(prompts), reports=reports)

    @rule(which=st.integers(0, 9), questions=st.integers(1, 4), reports=st.booleans())
    def ask(self, which: int, questions: int, reports: bool) -> None:
        self.reply(which, calls(("a", "ask", {"questions": questions})), reports=reports)

    @rule(which=st.integers(0, 9), words=st.integers(1, 100))
    def return_it(self, which: int, words: int) -> None:
        message = {"message": "word " * words}
        self.reply(which, calls(("r", "branch_return", message)), reports=False)

    @rule()
    @precondition(lambda self: self.turn is not None and not self.turn.done())
    def interrupt(self) -> None:
        async def end() -> None:
            assert self.turn is not None
            self.turn.cancel()
            await asyncio.wait({self.turn})

        self.loop.run_until_complete(end())
        self.nothing_is_reserved()

    @invariant()
    @precondition(lambda self: self.turn is not None)
    def what_is_settled_and_reserved_fits(self) -> None:
        accounts = [self.timeline.meter.account, *self.of_tools]
        for account in accounts:
            most = account.max_tokens
            assert account.reserved >= 0
            assert most is None or account.tokens + account.reserved <= most + self.model.beyond
        for branch in self.records():
            if branch.id in self.before:  # of an earlier turn, which checked it
                continue
            taken = branch.budget_used + branch.budget_reserved
            assert branch.budget_reserved >= 0
            assert taken <= branch.budget_total + self.model.beyond

    def records(self) -> list[Branch]:
        return self.loop.run_until_complete(self.branches.branches(self.thread.id))

    def nothing_is_reserved(self) -> None:
        assert [each.id for each in self.records() if each.is_open] == []
        assert self.model.open == []
        assert {each.budget_reserved for each in self.records()} <= {0}
        # An interrupted call still reserves the tokens of the request that its next round would
        # repeat.
        assert self.timeline.meter.account.reserved == 0

    async def finish(self) -> None:
        """Answer all open requests until the turn has ended, so that no request waits for ever."""
        assert self.turn is not None
        while (
            not self.turn.done()
        ):  # otherwise the turn hangs: a request waits for tokens that nothing releases
            for this in list(self.model.open):
                self.model.answer(this, text(1), reports=False)
            await asyncio.sleep(0)
        self.the_turn_has_ended_well()

    def the_turn_has_ended_well(self) -> None:
        if self.turn is not None and not self.turn.cancelled():
            error = self.turn.exception()
            assert error is None or isinstance(error, TurnLimitError), error

    def teardown(self) -> None:
        if self.turn is not None:
            self.loop.run_until_complete(self.finish())
            self.what_is_settled_and_reserved_fits()
            self.nothing_is_reserved()
        self.loop.close()


TestBudgets: Any = Budgets.TestCase
TestBudgets.settings = examples(25, stateful_step_count=30)
