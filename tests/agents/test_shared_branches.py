"""Branches that any process works on: the same tree, summary and events as in one, within the same limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from anabranch import Capabilities
from anabranch._asking.tokens import estimate_tokens, prompt_tokens, said
from anabranch.agents import (
    Agent,
    BranchEnded,
    BranchSelf,
    Event,
    Folding,
    NodeAdded,
    ToolEnded,
    ToolStarted,
    TurnLimitError,
    TurnLimits,
)
from anabranch.agents._branch_worker import BranchWorker, WorkLeft
from anabranch.errors import ToolError
from anabranch.folding import BranchService
from anabranch.messages import SampleReply, SampleRequest, Usage, text_of
from anabranch.stores import open_branch_store
from anabranch.testing import MockModel, calls
from anabranch.tree import Node, Tree
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.agents.test_waiting_branches import ask, number, results
from tests.durable.stores import Modelled
from tests.randomised import times

TURN = None
"""Stands for the turn among the branches that wait for a worker."""


class Fleet:
    """Processes over one store: each piece of work is done by an agent of its own."""

    def __init__(
        self, decide: Callable[[SampleRequest], Any], seed: int = 0, **options: Any
    ) -> None:
        self.model = MockModel(decide)
        self.trees = MemoryTrees()
        self.calls = Modelled()
        self.events: list[Event] = []
        self.worked_on: list[str] = []
        self._random = Random(seed)
        self._options: dict[str, Any] = {"shares_branches": True, **options}
        self._tools = options.pop("tools", [])
        self._options.pop("tools", None)

    def agent(self) -> Agent:
        async def listen(event: Event) -> None:
            self.events.append(event)

        return Agent(
            self.trees,
            self.model,
            tools=[ask, BranchSelf(), *self._tools],
            calls=self.calls,
            listener=listen,
            capabilities=Capabilities(),
            **self._options,
        )

    async def play(self, text: str = "go") -> Node:
        """Run a turn to its end, and answer all that is asked; return the last node."""
        agent = self.agent()
        end = await agent.say((await agent.begin()).id, text)
        end = await self._drive(end)
        while asked := await self.agent().open_questions(end):
            question = min(asked, key=lambda each: each.text)
            await self.agent().add_answer(question.id, number(len(question.text)))
            end = await self._drive(end, goes_on=True)
        return end

    async def _drive(self, end: Node, *, goes_on: bool = False) -> Node:
        """Have workers called as long as there is something to do, in any order."""
        waiting: list[Node | None] = [TURN]
        is_first = not goes_on
        while waiting:
            start = waiting.pop(self._random.randrange(len(waiting)))
            agent, worker = self.agent(), BranchWorker(self.agent())
            if start is not None:
                self.worked_on.append(start.text)
                await worker.work_on(start)
            elif not is_first:
                head = await agent.head(end.thread_id)
                node = await self.trees.node(head or "")
                assert node is not None
                end = await agent.go_on(node)
            is_first = False
            left = await self._left(worker, end.thread_id, start)
            if left.here:
                waiting.append(start)
            elif start is not None and not left.branches:
                roused = await worker.roused_by(start)
                waiting += [*roused.branches, *([TURN] if roused.here else [])]
            waiting += [each for each in left.branches if each not in waiting]
            waiting = list({each and each.id: each for each in waiting}.values())
        return end

    async def _left(self, worker: BranchWorker, thread_id: str, start: Node | None) -> WorkLeft:
        if start is not None:
            return await worker.left(start)
        found = await self.agent().end(thread_id)
        assert found is not None
        return WorkLeft(found.goes_on_here, tuple(found.branches))

    async def tree(self) -> Tree:
        [thread] = await self.trees.threads(2)
        return await self.trees.tree(thread.id)


def shape(tree: Tree) -> list[Any]:
    """What a tree says, whatever its ids are."""

    def below(parent: str | None) -> list[Any]:
        return [
            (
                node.kind,
                node.text,
                [
                    (use.id, text_of(held.content))
                    for use in node.tool_uses
                    if (held := tree.results.get((node.id, use.id)))
                ],
                below(node.id),
            )
            for node in tree.nodes
            if node.parent_id == parent
        ]

    return below(None)


def seen(events: list[Event]) -> Counter[Any]:
    """What was reported, in whatever order; how often a branch goes on depends on who works on it."""
    found: Counter[Any] = Counter()
    for event in events:
        match event:
            case NodeAdded(node):
                found["node", node.kind, node.text] += 1
            case BranchEnded(outcome):
                found["ended", outcome.start.text, outcome.error] += 1
            case ToolStarted(_, use):
                found["started", use.id, str(use.input)] += 1
            case ToolEnded(use, result):
                found["returned", use.id, text_of(result.pending or result.content)] += 1
            case _:
                pass
    return found


def program(seed: int) -> Callable[[SampleRequest], SampleReply | str]:
    """A model that works, asks and branches, as the prompt and the seed decide."""

    def decide(request: SampleRequest) -> SampleReply | str:
        said = heard(request).removeprefix("(self-prompt): ")
        if not said:
            return f"so: {results(request)}"
        random, depth = Random(f"{seed} {said}"), said.count(".")
        kind = random.choice(["say", "ask", "fork", "fork"]) if depth else "fork"
        if kind == "ask":
            return calls((f"ask {said}", "ask", {"name": said, "twice": random.random() < 0.3}))
        if kind == "say" or depth == 3:
            return f"{said} is done"
        prompts = [f"{said}.{n}" for n in range(random.randint(1, 3) + (depth == 0))]
        more = {"allow_work": True, "parallel": random.random() < 0.8}
        return calls((f"fork {said}", "branch_self", {"prompts": prompts, **more}))

    return decide


@pytest.mark.parametrize("seed", range(times(12, gate=4)))
async def test_it_does_not_matter_who_works_on_a_branch(seed: int) -> None:
    alone = Fleet(program(seed), shares_branches=False)
    many = Fleet(program(seed), seed)
    ends = [(await each.play()).text for each in (alone, many)]
    assert ends[0] == ends[1]
    assert shape(await alone.tree()) == shape(await many.tree())
    assert seen(alone.events) == seen(many.events)
    assert not alone.worked_on


def priced(decide: Callable[[SampleRequest], Any], spent: list[int], *, reported: bool) -> Any:
    """The model with what its replies use: all that it may, or less."""

    def reply(request: SampleRequest) -> SampleReply:
        made = decide(request)
        given = made if isinstance(made, SampleReply) else calls(text=made)
        least, text = prompt_tokens(request), estimate_tokens(said(given))
        used = Usage(input_tokens=least, output_tokens=min(text, request.max_tokens))
        spent.append(used.total_tokens)
        return given.model_copy(update={"usage": used if reported else None})

    return reply


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "estimated"])
@pytest.mark.parametrize("seed", range(times(8, gate=3)))
async def test_all_processes_together_never_exceed_the_limits_of_the_turn(
    seed: int, reported: bool
) -> None:
    random, spent = Random(seed), list[int]()
    limits = TurnLimits(
        max_tokens=random.choice([1_500, 6_000, 20_000, 80_000]),
        max_branches=random.choice([5, 12, 40]),
        max_reply_tokens=60,
        max_concurrent_requests=random.choice([7, 50]),
    )
    fleet = Fleet(priced(program(seed), spent, reported=reported), seed, limits=limits)
    with suppress(TurnLimitError):
        await fleet.play()
    assert sum(spent) <= (limits.max_tokens or 0)
    tree = await fleet.tree()
    opened = [node for node in tree.nodes if node.kind == "branch"]
    assert len(opened) <= limits.max_branches
    shares = [node.data["share"] for node in opened if "share" in node.data]
    assert len(fleet.worked_on) >= len(shares)


async def test_what_branches_leave_over_goes_back_to_the_turn() -> None:
    spent = list[int]()
    two = calls(("fork", "branch_self", {"prompts": ["a", "b"], "allow_work": True}))
    again = calls(("more", "branch_self", {"prompts": ["c", "d"], "allow_work": True}))
    replies: dict[str, SampleReply | str] = {"go": two, "a": "A", "b": "B", "c": "C", "d": "D"}
    returned = [again]

    def decide(request: SampleRequest) -> SampleReply | str:
        said = heard(request).removeprefix("(self-prompt): ")
        return replies[said] if said else returned.pop() if returned else "done"

    limits = TurnLimits(max_tokens=30_000, max_reply_tokens=100, max_branches=20)
    fleet = Fleet(priced(decide, spent, reported=True), limits=limits)
    assert (await fleet.play()).text == "done"
    shares = [node.data["share"] for node in (await fleet.tree()).nodes if "share" in node.data]
    first, second = cast("dict[str, Any]", shares[0]), cast("dict[str, Any]", shares[2])
    assert shares == [first, first, second, second]
    assert first["tokens"] == (30_000 - spent[0]) // 3
    assert second["tokens"] == (30_000 - sum(spent[:4])) // 3
    assert (first["branches"], second["branches"]) == ((20 - 2) // 3, (20 - 4) // 3)
    assert first["requests"] == 33


async def test_a_turn_that_goes_on_elsewhere_begins_with_what_it_has_used() -> None:
    spent = list[int]()
    decide = {"go": calls(("ask", "ask", {"name": "A"})), "": "done"}
    model = priced(lambda request: decide[heard(request)], spent, reported=True)
    await Fleet(model, limits=TurnLimits(max_tokens=100_000)).play()
    most = sum(spent) - 1
    spent.clear()
    with pytest.raises(TurnLimitError) as refused:
        await Fleet(model, limits=TurnLimits(max_tokens=most)).play()
    assert (len(spent), refused.value.used) == (1, spent[0])


async def test_too_little_for_all_is_not_divided() -> None:
    spent = list[int]()
    fleet = Fleet(
        priced(program(3), spent, reported=True),
        limits=TurnLimits(max_tokens=1_000, max_reply_tokens=60),
    )
    with suppress(TurnLimitError):
        await fleet.play()
    assert fleet.worked_on == []


# -- folding ---------------------------------------------------------------------------------


def fold(*names: str, **more: Any) -> SampleReply:
    return calls(
        *(
            (f"create {name}", "branch_create", {"description": name, "prompt": name, **more})
            for name in names
        )
    )


def folding(request: SampleRequest) -> SampleReply | str:
    """Two subtasks side by side; one asks, and returns; the other does two of its own."""
    said = request.messages[-1].text
    task = next((line for line in said.splitlines() if line in {"one", "two", "x", "y"}), said)
    last = results(request)
    if task == "go":
        return fold("one", "two")
    if task == "one":
        return calls(("ask one", "ask", {"name": "one"}))
    if task == "two":
        return fold("x", "y")
    if task in {"x", "y"}:
        return f"{task} is done"
    if re.fullmatch(r"one=\d+", last):
        return calls((f"return {last}", "branch_return", {"message": f"{last} it is"}))
    return f"so: {last}"


@pytest.mark.parametrize("seed", range(times(4, gate=2)))
async def test_subtasks_side_by_side_are_worked_on_by_any_process(
    tmp_path: Path, seed: int
) -> None:
    async def play(folder: str, **options: Any) -> Fleet:
        store = open_branch_store(f"sqlite:///{tmp_path / folder}")
        service = BranchService(store)
        fleet = Fleet(folding, seed, tools=[Folding(service)], **options)
        end = await fleet.play()
        assert end.text == "so: one=4 it is, so: x is done, y is done"
        [thread] = await fleet.trees.threads(1)
        assert not any(each.is_open for each in await store.branches(thread.id))
        await store.close()
        return fleet

    alone, many = await play("alone", shares_branches=False), await play("many")
    assert seen_in_folding(alone) == seen_in_folding(many)
    assert len(set(many.worked_on)) == 4


def seen_in_folding(fleet: Fleet) -> Counter[Any]:
    """What was reported, without the ids of branches."""
    found: Counter[Any] = Counter()
    for key, count in seen(fleet.events).items():
        found[re.sub(r"\(branch [^)]*\)", "(branch)", str(key))] += count
    return found


async def test_subtasks_in_the_memory_of_a_process_stay_there() -> None:
    fleet = Fleet(folding, tools=[Folding()])
    agent = fleet.agent()
    assert (await agent.say((await agent.begin()).id, "go")).tool_uses
    assert fleet.worked_on == []


# -- the worker ------------------------------------------------------------------------------


async def opened(fleet: Fleet, text: str = "go") -> list[Node]:
    """Begin a turn, and return the branches that wait for workers."""
    agent = fleet.agent()
    end = await agent.say((await agent.begin()).id, text)
    found = await agent.end(end.thread_id)
    assert found is not None
    return list(found.branches)


async def test_a_branch_that_is_given_up_ends_with_an_error() -> None:
    fleet = Fleet(program(3))
    one, two = await opened(fleet)
    worker = BranchWorker(fleet.agent())
    await worker.fail(one, "No one can work on this.")
    await worker.fail(one, "It has ended.")
    assert await worker.roused_by(one) == WorkLeft()
    await worker.fail(two, "Nor on this.")
    assert await worker.roused_by(two) == WorkLeft(here=True)
    assert (await worker.left(one)) == WorkLeft()
    failed = [event.outcome.error for event in fleet.events if isinstance(event, BranchEnded)]
    assert failed == ["No one can work on this.", "Nor on this."]
    head = await fleet.trees.node(one.parent_id or "")
    assert head is not None
    end = await fleet.agent().go_on(head)
    assert "Failed: No one can work on this." in end.text


async def test_a_subtask_that_is_given_up_is_closed(tmp_path: Path) -> None:
    store = open_branch_store(f"sqlite:///{tmp_path / 'branches'}")
    fleet = Fleet(folding, tools=[Folding(BranchService(store))])
    one, _ = await opened(fleet)
    worker = BranchWorker(fleet.agent())
    await worker.fail(one, "it is given up")
    await worker.work_on(one)
    record = await store.branch(str(one.data["branch_id"]))
    assert record is not None
    assert (record.status, record.error) == ("failed", "it is given up")
    assert await worker.left(one) == WorkLeft()
    await store.close()


async def test_what_is_no_branch_of_a_worker_is_refused() -> None:
    fleet = Fleet(program(3))
    one, _ = await opened(fleet)
    worker = BranchWorker(fleet.agent())
    caller = await fleet.trees.node(one.parent_id or "")
    assert caller is not None
    with pytest.raises(ToolError, match="No worker works on a branch"):
        await worker.work_on(caller)
    alone = Agent(fleet.trees, fleet.model, shares_branches=True)
    with pytest.raises(ToolError, match="is not available"):
        await BranchWorker(alone).work_on(one)


async def test_a_branch_that_was_about_to_be_closed_is_closed_by_the_next_process(
    tmp_path: Path,
) -> None:
    """Its process died between the last reply and the record."""
    store = open_branch_store(f"sqlite:///{tmp_path / 'branches'}")
    fleet = Fleet(folding, tools=[Folding(BranchService(store))], shares_branches=False)
    agent = fleet.agent()
    [message] = await agent.put((await agent.begin()).id, [(None, "go")])
    caller = agent.dependencies.node(message.thread_id, message.id, "assistant", fold("y").content)
    service = BranchService(store)
    record = (await service.create("y", "y", session_id=message.thread_id)).branch
    data: Any = {"tool_use_id": "create y", "branch_id": record.id}
    start = agent.dependencies.node(caller.thread_id, caller.id, "branch", "y", data=data)
    ended = agent.dependencies.node(caller.thread_id, start.id, "assistant", "y is done")
    await agent.add([caller])
    await agent.add([start, ended], head=False)
    end = await agent.go_on(caller)
    assert end.text == "so: y is done"
    await store.close()
