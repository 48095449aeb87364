"""Fair shares of the workers: a run counts for the owner of its conversation."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from anabranch.chat import make_chat_app
from anabranch.engines import Wake
from anabranch.messages import SampleReply
from anabranch.testing import MockModel, TestEngine, calls
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.callers import ANN, BO, known
from tests.chat.shared_runs import accepted, process
from tests.chat.sleepers import Machines
from tests.chat.web import message, model


class Busy:
    """A model that starts all requests immediately, and ends them when the test allows it."""

    def __init__(self) -> None:
        self.begun: list[str | None] = []
        self.resume = asyncio.Event()
        self._changed = asyncio.Event()

    def model(self) -> MockModel:
        return MockModel(self._decide)

    def _decide(self, request: Any) -> AsyncIterator[str | SampleReply]:
        self.begun.append(heard(request))
        self._changed.set()
        return self._reply()

    async def _reply(self) -> AsyncIterator[str | SampleReply]:
        yield "Well, "
        await self.resume.wait()
        yield calls(text="Well, yes.")

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.parametrize("drop", [0.0, 1.0], ids=["called", "lost wakes"])
async def test_all_processes_together_keep_the_limit_of_runs_per_principal(
    url: str, drop: float
) -> None:
    busy = Busy()
    options: dict[str, Any] = {"engine": TestEngine(0, drop=drop), "authenticate": known}
    options |= {"replies": busy.model(), "concurrency": 4, "per_principal": 1}
    async with process(url, **options) as one, process(url, **options) as two:
        one.headers.update(ANN)
        two.headers.update(BO)
        for number in (1, 2, 3):
            await accepted(one, message(f"ann {number}", thread=f"a{number}", run=f"a{number}"))
        await accepted(two, message("bo", thread="b", run="b"))
        await busy.until_begun(2)
        assert sorted(str(said).split()[0] for said in busy.begun) == ["ann", "bo"]
        busy.resume.set()
        await busy.until_begun(4)
    assert sorted(map(str, busy.begun)) == ["ann 1", "ann 2", "ann 3", "bo"]


async def test_a_run_of_another_applications_conversation_is_reported(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Machines(url).process() as one:
        with caplog.at_level(logging.WARNING, "anabranch.chat.web"):
            await one.advance(Wake("theirs", "r1", "anabranch.chat"))
    assert "'theirs', which is not in the store" in caplog.text


def test_a_limit_for_a_principal_is_positive() -> None:
    with pytest.raises(ValueError, match="per_principal must be at least 1, not 0"):
        make_chat_app(MemoryTrees(), model(), per_principal=0)
