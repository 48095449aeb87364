"""A task of 200 steps in ten subtasks, flat and folded, through the real turn of an agent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from anabranch import BranchContext, tool
from anabranch._asking import prompt_tokens
from anabranch.agents import Agent, Folding, TurnLimits
from anabranch.folding import BranchService
from anabranch.messages import SampleReply, SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import MockModel, calls
from anabranch.tree import project
from tests.agents.memory import MemoryTrees

SUBTASKS, PARTS, STEPS = 10, 4, 5
TASK = "Each of these records has to be read. " + "There is much to know before. " * 1_100
RECORD = "a field of this record and what it holds, " * 60


@tool
async def read(ctx: BranchContext, number: int) -> str:
    return f"record {number}: {RECORD}"


def reading(number: int) -> SampleReply:
    return calls((f"read_{number}", "read", {"number": number}))


def branch(name: str, budget: int) -> SampleReply:
    given = {"description": name, "prompt": f"Do {name}.", "budget": budget}
    return calls((f"create_{name}", "branch_create", given))


def conclusion(name: str) -> SampleReply:
    return calls((f"return_{name}", "branch_return", {"message": f"{name} is as it should be"}))


def folded() -> Iterator[SampleReply]:
    numbers = iter(range(SUBTASKS * PARTS * STEPS))
    for subtask in range(SUBTASKS):
        yield branch(f"subtask {subtask}", 20_000)
        for part in range(PARTS):
            yield branch(f"part {subtask}.{part}", 4_000)
            for _ in range(STEPS):
                yield reading(next(numbers))
            yield conclusion(f"part {subtask}.{part}")
        yield conclusion(f"subtask {subtask}")
    yield calls(text="All is as it should be.")


def flat() -> Iterator[SampleReply]:
    yield from map(reading, range(SUBTASKS * PARTS * STEPS))
    yield calls(text="All is as it should be.")


class Trace:
    """The requests that a task has sent to the model."""

    def __init__(self, replies: Iterator[SampleReply]) -> None:
        self.branches = BranchService(open_branch_store("memory:"))
        self.model = MockModel(lambda request: next(replies))
        self.agent = Agent(
            MemoryTrees(),
            self.model,
            tools=[read, Folding(self.branches)],
            limits=TurnLimits(max_requests=300),
        )
        self.thread_id = ""
        self.last = ""

    async def run(self) -> Trace:
        self.thread_id = (await self.agent.begin()).id
        self.last = (await self.agent.say(self.thread_id, TASK)).id
        return self

    @property
    def peak(self) -> int:
        return prompt_tokens(max(self.model.requests, key=lambda each: len(sent(each))))


def sent(request: SampleRequest) -> str:
    return json.dumps([message.model_dump(mode="json") for message in request.messages])


def shared(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    length = min(len(first), len(second))
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[:middle] == second[:middle] else (low, middle - 1)
    return low


@pytest.mark.long  # the flat task sends 200 steps twice
async def test_a_folded_task_has_a_tenth_of_the_context_and_the_same_result() -> None:
    flat_trace, trace = await Trace(flat()).run(), await Trace(folded()).run()

    assert flat_trace.peak >= 10 * trace.peak, (flat_trace.peak, trace.peak)

    texts = [sent(request) for request in trace.model.requests]
    reused = 0
    for number, text in enumerate(texts):
        # The longest beginning that an earlier request had: a provider's cache holds it.
        reused += max(
            (shared(text, earlier) for earlier in texts[max(0, number - 30) : number]), default=0
        )
    assert reused >= 0.95 * sum(map(len, texts)), reused / sum(map(len, texts))

    path = await trace.agent.store.path(trace.last)
    first, *calls_and_results, last = project(path.nodes, path.results)
    assert (first.text, last.text) == (TASK, "All is as it should be.")
    assert len(calls_and_results) == 2 * SUBTASKS
    concluded = [
        part.text
        for message in calls_and_results
        for block in message.content
        if block.type == "tool_result"
        for part in block.content
        if part.type == "text"
    ]
    assert concluded == [f"subtask {number} is as it should be" for number in range(SUBTASKS)]

    records = await trace.branches.branches(trace.thread_id)
    assert len(records) == SUBTASKS * (PARTS + 1)
    assert {(each.status, each.error) for each in records} == {("completed", None)}
    assert all(each.budget_used <= each.budget_total for each in records)
    tree = await trace.agent.store.tree(trace.thread_id)
    stored = sum("record" in str(result.content) for result in tree.results.values())
    assert stored == SUBTASKS * PARTS * STEPS, "everything that was folded is in the tree"
