"""Answers that arrive as their question ends, on both databases: the row of the call decides."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, tool
from anabranch._aio import SystemClock, Timer
from anabranch.agents import Agent, QuestionAnsweredError, QuestionExpiredError
from anabranch.agents._agent_dependencies import EXPIRE_AFTER
from anabranch.agents._called_tool import reaper_of
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import open_stores
from anabranch.testing import MockModel, calls
from anabranch.tree import Node
from tests.agents.harness import heard
from tests.postgres import Server

HOUR = 3_600.0
BEHIND = 10.0
"""Seconds by which the clock of the answering process is behind: less than a lease lasts."""

SEVEN = ElicitReply(action="accept", content={"row": 7})


class Seat(BaseModel):
    row: int


class Ahead(SystemClock):
    """A clock that is some seconds ahead of the machine's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() + self._seconds

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return super().call_at(when - self._seconds, callback)


class Desk:
    """Processes with different clocks, over one database."""

    def __init__(self, url: str) -> None:
        self.calls, self.trees = open_stores(url)
        self.done: list[str] = []

        async def do(what: str) -> str:
            self.done.append(what)
            return what

        async def undo(what: str) -> None:
            self.done.append(f"not {what}")

        @tool
        async def hold(ctx: BranchContext, timed: bool) -> str:
            """Hold a seat, and ask for a row; the question lasts an hour, or has no limit."""
            await ctx.step(do, "held", undo=undo)
            asking = ctx.elicit(Seat, "Which row?")
            answer = await (ctx.race(asking, ctx.sleep(HOUR)) if timed else asking)
            if answer is None:
                return await ctx.step(do, "any row")
            took = f"row {answer.content.row}" if isinstance(answer, Accepted) else answer.action
            return await ctx.step(do, took)

        self.tool = hold

    def process(self, ahead: float) -> Agent:
        """Return an agent of another process, whose clock is a number of seconds ahead."""
        return Agent(
            self.trees,
            MockModel(self._decide),
            tools=[self.tool],
            capabilities=Capabilities(),
            calls=self.calls,
            clock=Ahead(ahead),
        )

    @staticmethod
    def _decide(request: SampleRequest) -> SampleReply:
        said = heard(request)
        return calls(("use", "hold", {"timed": said == "timed"})) if said else calls(text="Done.")

    async def asked(self, said: str) -> Node:
        agent = self.process(0.0)
        return await agent.say((await agent.begin()).id, said)

    async def expire(self, question: Node, ahead: float) -> None:
        await reaper_of(self.process(ahead).dependencies, {"hold": self.tool}).expire()

    async def stop(self, question: Node, ahead: float) -> None:
        reaper = reaper_of(self.process(ahead).dependencies, {"hold": self.tool})
        await reaper.end(str(question.data["call"]))

    async def leave(self, question: Node, ahead: float) -> None:
        await self.process(ahead).cancel_questions(question)

    async def wake(self, question: Node, ahead: float) -> None:
        await self.process(ahead).resume(question)

    async def answer(self, question: Node, ahead: float) -> bool:
        """Answer, and run the turn; return whether the answer is accepted."""
        agent = self.process(ahead)
        try:
            answer = await agent.add_answer(question.id, SEVEN)
        except (QuestionAnsweredError, QuestionExpiredError):
            return False
        await agent.resume(answer)
        return True


Rival: TypeAlias = Callable[[Desk, Node, float], Awaitable[None]]
TAKEN, UNDONE = ["held", "row 7"], ["held", "not held"]
RIVALS: dict[str, tuple[Rival, str, float, list[str]]] = {
    "reaper": (Desk.expire, "open", EXPIRE_AFTER, UNDONE),
    "clock": (Desk.wake, "timed", HOUR, ["held", "any row"]),
    "leaver": (Desk.leave, "open", EXPIRE_AFTER, ["held", "cancel"]),
    "stop": (Desk.stop, "open", EXPIRE_AFTER, UNDONE),
}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgres")
        return server.new_url()
    return f"sqlite:///{tmp_path}/races.db"


@pytest.mark.parametrize("is_first", [True, False], ids=["answer first", "rival first"])
@pytest.mark.parametrize("name", RIVALS)
async def test_either_an_answer_or_its_rival_wins(url: str, name: str, is_first: bool) -> None:
    """The answer is in time only by the clock of its own process, which is behind."""
    rival, said, end, otherwise = RIVALS[name]
    desk = Desk(url)
    question = await desk.asked(said)
    racers = [desk.answer(question, end - BEHIND), rival(desk, question, end)]
    results = await asyncio.gather(*(racers if is_first else racers[::-1]))
    is_taken = results[0 if is_first else 1]
    if name != "stop":  # the rival may come after an accepted answer
        assert desk.done == (TAKEN if is_taken else otherwise)
    assert desk.done in (TAKEN, otherwise)
    await desk.process(end).resume(question)
    assert desk.done in (TAKEN, otherwise)
    await desk.trees.close()
