"""``branch_self``: the number of branches, their places in the tree, and the messages for each."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf, Event, NodeAdded, Question, ToolStarted, TurnLimits
from anabranch.agents._branch_self_tool import PLACEHOLDER
from anabranch.errors import StoreError
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, Usage
from anabranch.models import ModelError
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import NO_RESULT, Node, Path, Ref, RefusedError, Result, Tree
from tests.agents.harness import Answering, Setting, fork, heard, interrupted, results_in, set_up
from tests.agents.memory import MemoryTrees
from tests.patience import PATIENCE


class Card(BaseModel):
    number: int


both_ways = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])


@tool
async def weather(ctx: BranchContext, city: str) -> str:
    return f"rain in {city}"


def task(request: SampleRequest) -> str | None:
    """Return the task of a branch; ``None`` outside of branches."""
    text = heard(request)
    return text.removeprefix("(self-prompt): ") if text.startswith("(self-prompt): ") else None


def forking(*prompts: str, **more: Any) -> Callable[[SampleRequest], SampleReply | str]:
    """A model that forks itself at the word "fork", and in a branch repeats the task."""

    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return fork(*prompts, **more)
        doing = task(request)
        return "main" if doing is None else f"done: {doing}"

    return decide


async def summary(here: Setting) -> str:
    """Return the result of ``branch_self`` in the last request."""
    results = results_in(here.model.requests[-1].messages[-1].content)
    return results["fork"]


# -- how many, and where --------------------------------------------------------------------------


@both_ways
async def test_there_are_as_many_branches_as_prompts_all_below_the_caller(parallel: bool) -> None:
    for number in range(50, 0, -1):
        prompts = [f"task {each}" for each in range(number)]
        here = await set_up(forking(*prompts, parallel=parallel))
        end = await here.say("fork")
        children = await here.agent.store.children((await here.caller()).id)
        branches = [node for node in children if node.kind == "branch"]
        assert [node.text for node in branches] == [f"(self-prompt): {each}" for each in prompts]
        assert len(children) == number + 1  # and the results, after which the main stream continues
        assert end.text == "main"
        assert len((await here.tree()).nodes) == 2 + 2 * number + 2
        if number in {1, 2, 3, 50}:
            await here.check()


@both_ways
async def test_branches_nest_up_to_the_limit_of_depth(parallel: bool) -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        doing = task(request)
        if heard(request) == "fork":
            doing = "t"
        if doing is None:
            results = results_in(request.messages[-1].content)
            return "too deep" if "nested 4 deep" in str(results) else "both done"
        return fork(f"{doing}1", f"{doing}2", allow_work=True, parallel=parallel)

    here = await set_up(decide)
    await here.say("fork")
    tree = await here.check()
    depths = Counter(len(node.text) - len("(self-prompt): t") for node in await _branches(here))
    assert depths == {1: 2, 2: 4, 3: 8, 4: 16}
    below = Counter(node.parent_id for node in tree.nodes if node.kind == "branch")
    assert set(below.values()) == {2}
    assert sum(node.text == "too deep" for node in tree.nodes) == 16
    assert "b1.2 (t12):\nboth done" in "".join(
        [await _summary_at(here, node) for node in tree.nodes if node.kind == "results"]
    )


async def test_another_agent_can_continue_the_thread_and_fork_again() -> None:
    here = await set_up(forking("a", "b"))
    await here.say("fork")
    again = await set_up(forking("c", "d", "e"), store=here.agent.store)
    again.thread_id = here.thread_id
    await again.say("fork")
    await again.check()
    assert len(await _branches(again)) == 5
    results = results_in(again.model.requests[-1].messages[-1].content)
    assert [f"b{number} (" in str(results) for number in (2, 3, 5, 6)] == [False, True, True, False]


async def test_two_calls_in_one_answer_make_branches_of_both() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return calls(
                ("x", "branch_self", {"prompts": ["a", "b"]}),
                ("y", "branch_self", {"prompts": ["c"], "parallel": False}),
            )
        return task(request) or "main"

    here = await set_up(decide)
    await here.say("fork")
    await here.check()
    results = results_in(here.model.requests[-1].messages[-1].content)
    assert results["x"].startswith("2/2 branches completed (parallel, single response).")
    assert results["y"].startswith("1/1 branches completed (sequential, single response).")
    assert [node.data["tool_use_id"] for node in await _branches(here)] == ["x", "x", "y"]
    assert ("b2 (b)" in results["x"], "b3 (c)" in results["y"]) == (True, True)


# -- what is sent, and when -----------------------------------------------------------------------


async def test_a_branch_sees_the_call_with_a_placeholder_and_its_prompt_in_one_message() -> None:
    here = await set_up(forking("a", "b"))
    await here.say("fork")
    first, *branches, last = here.model.requests
    assert len(branches) == 2
    for request in branches:
        assert request.messages[: len(first.messages)] == first.messages
        assert request.messages[:-1] == branches[0].messages[:-1]
        assert results_in(request.messages[-1].content) == {"fork": PLACEHOLDER}
        assert request.tools == first.tools
    assert PLACEHOLDER not in str(last)


async def test_every_branch_sees_the_summary_once_the_main_stream_continues() -> None:
    here = await set_up(forking("a", "b"))
    await here.say("fork")
    main = await summary(here)
    for branch in await _branches(here):
        assert await here.results(branch) == {"fork": main}
    [answer] = await here.agent.store.children((await _branches(here))[0].id)
    end = await here.say("go on here", at=answer.id)
    assert end.text == "main"
    assert results_in(here.model.requests[-1].messages[2].content) == {"fork": main}
    await here.check()


async def test_the_summary_has_all_results_in_the_order_of_prompts() -> None:
    order = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    order["c"].set()
    follows = {"c": "b", "b": "a"}

    async def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return fork("a", "b", "c")
        doing = task(request)
        if doing is None:
            return "main"
        await order[doing].wait()
        if doing in follows:
            order[follows[doing]].set()
        return f"done: {doing}"

    here = await set_up(decide)
    with anyio.fail_after(PATIENCE):
        await here.say("fork")
    assert await summary(here) == (
        "3/3 branches completed (parallel, single response).\n\n"
        "b1 (a):\ndone: a\n\nb2 (b):\ndone: b\n\nb3 (c):\ndone: c\n\n"
        "Not recombined, as none was asked for."
    )


async def test_the_main_stream_sees_only_the_summary() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return fork("a", "b", allow_work=True)
        if task(request) is not None:
            return calls(("w", "weather", {"city": "Linz"}), text="let me look")
        return "main" if "weather" not in str(request.messages) else "it rains"

    here = await set_up(decide, tools=[weather])
    await here.say("fork")
    tree = await here.check()
    assert [message.role for message in here.model.requests[-1].messages] == [
        *["user", "assistant", "user"]
    ]
    assert (await summary(here)).startswith("2/2 branches completed (parallel, iterative).")
    assert sum(node.text == "it rains" for node in tree.nodes) == 2


async def test_results_of_other_tools_are_held_back_while_branches_run() -> None:
    looked = asyncio.Event()

    @tool
    async def window(ctx: BranchContext) -> str:
        looked.set()
        return "rain"

    async def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            use = {"prompts": ["a"], "allow_work": True}
            return calls(("w", "window", {}), ("fork", "branch_self", use), ("x", "missing", {}))
        if task(request) is not None:
            await looked.wait()
            return calls(("again", "window", {}))
        return "branch" if "again" in results_in(request.messages[-1].content) else "main"

    here = await set_up(decide, tools=[window])
    with anyio.fail_after(PATIENCE):
        await here.say("fork")
    await here.check()
    _, begun, gone_on, last = here.model.requests
    held = dict.fromkeys(["w", "fork", "x"], PLACEHOLDER)
    assert results_in(begun.messages[-1].content) == held
    assert gone_on.messages[: len(begun.messages)] == begun.messages
    assert not any(getattr(block, "is_error", False) for block in begun.messages[-1].content)
    results = results_in(last.messages[-1].content)
    assert results["w"] == "rain"
    assert results["x"].startswith("There is no tool 'missing'")
    assert results["fork"].startswith("1/1")
    errors = [getattr(block, "is_error", None) for block in last.messages[-1].content]
    assert errors == [False, False, True]


async def test_a_single_response_that_calls_tools_says_so_and_can_be_continued() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return fork("a")
        if task(request) is not None:
            return calls(("w", "weather", {"city": "Linz"}))
        return "main"

    here = await set_up(decide, tools=[weather])
    await here.say("fork")
    assert "(It called weather, which was not run: allow_work is false.)" in await summary(here)
    [branch] = await _branches(here)
    [answer] = await here.agent.store.children(branch.id)
    await here.say("and?", at=answer.id)
    assert results_in(here.model.requests[-1].messages[-1].content) == {"w": NO_RESULT}
    await here.check()


async def test_the_head_stays_with_the_main_stream() -> None:
    heads: list[str | None] = []

    async def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) is not None:
            heads.append(await here.agent.head(here.thread_id))
        return forking("a", "b")(request)

    here = await set_up(decide)
    end = await here.say("fork")
    caller = await here.caller()
    assert heads == [caller.id, caller.id]
    assert await here.agent.head(here.thread_id) == end.id


# -- order and limits -----------------------------------------------------------------------------


async def test_parallel_branches_ask_the_user_in_parallel() -> None:
    """The answerer here shows one question at a time and lets the others wait; a page shows all."""
    barrier = asyncio.Barrier(2)

    @tool
    async def pick(ctx: BranchContext, name: str) -> str:
        return (await ctx.elicit(Card, name)).action

    async def answer(_: Question) -> ElicitReply:
        await barrier.wait()
        return ElicitReply(action="accept", content={"number": 1})

    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork":
            return fork("a", "b", allow_work=True)
        doing = task(request)
        return "done" if doing is None else calls(("p", "pick", {"name": doing}))

    here = await set_up(decide, tools=[pick], user=Answering(answer))
    with anyio.fail_after(PATIENCE):
        await here.say("fork")
    await here.check()
    assert (await summary(here)).startswith("2/2")
    questions = {node.text: node for node in await here.of_kind("question")}
    assert questions.keys() == {"a", "b"}
    for node in await here.of_kind("answer"):
        path = await here.agent.store.path(node.id)
        kinds = [one.kind for one in path.nodes[-4:]]
        assert kinds == ["branch", "assistant", "question", "answer"]


async def test_all_branches_of_a_turn_are_counted() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request) == "fork" or task(request) is not None:
            return fork("a", "b", "c", allow_work=True)
        return "done"

    here = await set_up(decide, limits=TurnLimits(max_branches=10, max_depth=9))
    await here.say("fork")
    await here.check()
    assert len(await _branches(here)) == 9
    summaries = [await _summary_at(here, node) for node in await here.of_kind("results")]
    assert any("9 of at most 10 branches are open" in each for each in summaries)


# -- what the store is asked ----------------------------------------------------------------------


class Counting(MemoryTrees):
    """A store that counts calls, and refuses to read a whole thread unless ``readable`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.readable = asyncio.Event()
        self.fails = False

    async def path(self, node_id: str) -> Path:
        self.counts["path"] += 1
        return await super().path(node_id)

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        self.counts["append"] += 1
        await super().append(nodes, results=results, refs=refs)

    async def tree(self, thread_id: str) -> Tree:
        await self.readable.wait()
        if self.fails:
            self.fails = False
            raise StoreError("The disk is away.")
        return await super().tree(thread_id)


async def test_a_branch_takes_one_append_and_no_read_when_others_run() -> None:
    counts: list[Counter[str]] = []
    for number in (2, 40):
        store = Counting()
        store.readable.set()
        here = await set_up(forking(*map(str, range(number))), store=store)
        await here.say("fork")
        counts.append(store.counts)
    assert counts[1] - counts[0] == Counter(append=38)


@both_ways
@pytest.mark.parametrize("fails", [False, True])
async def test_no_branch_waits_for_its_name(parallel: bool, fails: bool) -> None:
    """Naming reads the whole thread, which may be large, and can happen at any time."""
    store = Counting()
    store.fails = fails

    def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) == "b":
            store.readable.set()
        return forking("a", "b", parallel=parallel)(request)

    here = await set_up(decide, store=store)
    with anyio.fail_after(PATIENCE):
        await here.say("fork")
    assert "b1 (a):\ndone: a\n\nb2 (b):\ndone: b" in await summary(here)


# -- what goes wrong ------------------------------------------------------------------------------


async def _half() -> AsyncIterator[str | SampleReply]:
    yield "half "
    raise ModelError("The line is dead. Try again.")


FAILURES: dict[str, tuple[Exception | None, str]] = {
    "an error that is known": (ModelError("No such model. Name another."), "No such model. Name"),
    "one that is not": (RuntimeError("secret"), "An unexpected error (RuntimeError)"),
    "a broken stream": (None, "The line is dead. Try again."),
}


@both_ways
@pytest.mark.parametrize("name", FAILURES)
async def test_a_failing_branch_says_so_and_does_not_affect_the_others(
    name: str, parallel: bool, caplog: pytest.LogCaptureFixture
) -> None:
    error, text = FAILURES[name]

    def decide(request: SampleRequest) -> Any:
        if task(request) == "b":
            return error or _half()
        return forking("a", "b", "c", parallel=parallel)(request)

    here = await set_up(decide)
    end = await here.say("fork")
    await here.check()
    assert end.text == "main"
    said = await summary(here)
    assert said.startswith("2/3 branches completed")
    assert f"b2 (b):\nFailed: {text}" in said
    assert ("Before that: half" in said) == (error is None)
    assert "b1 (a):\ndone: a" in said
    assert "b3 (c):\ndone: c" in said
    assert "secret" not in said
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert logged == ([error] if isinstance(error, RuntimeError) else [])
    branches = await _branches(here)
    assert [len(await here.agent.store.children(node.id)) for node in branches] == [1, 1, 1]
    [failed] = [node for node in (await here.tree()).nodes if "error" in node.data]
    assert failed.text.startswith(f"(this branch has failed): {text}")
    path = await here.agent.store.path(failed.id)
    assert ("half " in [node.text for node in path.nodes]) == (error is None)
    assert (await here.say("again?", at=failed.id)).text == "main"
    await here.check()


@both_ways
async def test_a_failure_that_cannot_be_recorded_does_not_affect_other_branches(
    parallel: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(nodes: Sequence[Node], _: Sequence[Result]) -> None:
        if any(node.text == "done: b" or "error" in node.data for node in nodes):
            raise RefusedError("It is too long.")

    here = await set_up(forking("a", "b", "c", parallel=parallel), store=MemoryTrees(refuse))
    end = await here.say("fork")
    await here.check()
    assert end.text == "main"
    said = await summary(here)
    assert said.startswith("2/3 branches completed")
    assert "b2 (b):\nFailed: It is too long." in said
    branches = await _branches(here)
    assert [len(await here.agent.store.children(node.id)) for node in branches] == [1, 0, 1]
    [logged] = [record for record in caplog.records if record.exc_info]
    assert (
        logged.message == f"the failure of the branch at {branches[1].id!r} could not be recorded"
    )


@both_ways
async def test_a_listener_that_fails_in_one_branch_does_not_affect_the_others(
    parallel: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def listen(event: Event) -> None:
        if isinstance(event, NodeAdded) and event.node.text == "done: b":
            raise KeyError("the listener's")

    here = await set_up(forking("a", "b", "c", parallel=parallel), listener=listen)
    await here.say("fork")
    await here.check()
    said = await summary(here)
    assert said.startswith("2/3 branches completed")
    assert "b2 (b):\nFailed: An unexpected error (KeyError); the log has the details." in said
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [KeyError]


async def test_a_branch_that_fails_before_a_tool_reports_its_last_text() -> None:
    looking = calls(("first", "weather", {"city": "Graz"}), text="Looking.")

    def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) == "a":
            return looking
        if "first" in results_in(request.messages[-1].content):
            return calls(("second", "weather", {"city": "Linz"}))
        return fork("a", allow_work=True) if heard(request) == "fork" else "main"

    async def listen(event: Event) -> None:
        if isinstance(event, ToolStarted) and event.use.id == "second":
            raise RuntimeError

    here = await set_up(decide, tools=[BranchSelf(), weather], listener=listen)
    await here.say("fork")
    said = await summary(here)
    assert "b1 (a):\nFailed: An unexpected error (RuntimeError)" in said
    assert "Before that: Looking." in said


async def test_a_branch_that_times_out_is_stopped_and_its_partial_reply_is_stored() -> None:
    clock, waiting = ManualClock(), asyncio.Event()

    async def slowly() -> AsyncIterator[str | SampleReply]:
        yield "I am "
        waiting.set()
        await asyncio.Event().wait()

    def decide(request: SampleRequest) -> Any:
        return slowly() if task(request) == "b" else forking("a", "b")(request)

    here = await set_up(decide, limits=TurnLimits(timeout=30), clock=clock)
    turn = asyncio.create_task(here.say("fork"))
    with anyio.fail_after(PATIENCE):
        await waiting.wait()
        clock.advance(31)
        await turn
    tree = await here.check()
    late = (await _branches(here))[1].id
    text = f"b2 (b):\nFailed: Branch {late!r} was stopped after its timeout of 30 s."
    assert text in await summary(here)
    assert [node.text for node in tree.nodes if node.data.get("stop_reason") == "interrupted"] == [
        "I am "
    ]


@both_ways
async def test_finished_branches_are_reported_after_an_interruption(parallel: bool) -> None:
    waiting, others = asyncio.Event(), asyncio.Event()

    async def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) == "b":
            if parallel:
                await others.wait()
            waiting.set()
            await asyncio.Event().wait()
        return forking("a", "b", "c", parallel=parallel)(request)

    async def listen(event: Event) -> None:
        if len(await here.of_kind("assistant")) == 3:
            others.set()

    here = await set_up(decide, listener=listen)
    await interrupted(here.say("fork"), waiting)
    tree = await here.check()
    branches = await _branches(here)
    assert len(branches) == 3
    assert await here.agent.head(here.thread_id) == (await here.caller()).id
    assert {(await here.results(node))["fork"] for node in branches} == {PLACEHOLDER}
    await here.say("what have you got?")
    text = await summary(here)
    done = 2 if parallel else 1
    assert text.startswith(f"{done}/3 branches completed")
    assert "b2 (b):\nInterrupted before it was done." in text
    assert "Interrupted; nothing was recombined." in text
    assert await here.results(branches[0]) == {"fork": text}
    assert len((await here.check()).nodes) == len(tree.nodes) + 2


async def test_an_interruption_that_cannot_be_recorded_is_still_raised() -> None:
    waiting, full = asyncio.Event(), list[bool]()

    def refuse(_: Sequence[Node], results: Sequence[Result]) -> None:
        if full and results:
            raise StoreError("The disk is full.")

    async def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) is not None:
            full.append(True)
            waiting.set()
            await asyncio.Event().wait()
        return forking("a")(request)

    here = await set_up(decide, store=MemoryTrees(refuse))
    await interrupted(here.say("fork"), waiting)
    full.clear()
    await here.say("what have you got?")
    await here.check()
    assert await summary(here) == NO_RESULT


async def test_bad_input_is_answered_with_how_to_call_the_tool() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        return calls(("fork", "branch_self", {})) if heard(request) == "fork" else "sorry"

    here = await set_up(decide)
    assert (await here.say("fork")).text == "sorry"
    await here.check()
    said = await summary(here)
    assert said.startswith("branch_self was not run: prompts")
    assert 'branch_self(prompts=["first task", "second task"], allow_work=false' in said
    assert await _branches(here) == []
    [block] = here.model.requests[-1].messages[-1].content
    assert getattr(block, "is_error", None) is True


# -- recombining ----------------------------------------------------------------------------------


async def test_a_recombiner_does_not_change_the_conversation() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if "Judge these" in heard(request):
            return "Option 2: it is shorter."
        return forking("a", "b", recombine="LLM_Judge")(request)

    here = await set_up(decide)
    await here.say("fork")
    tree = await here.check()
    assert len(tree.nodes) == 2 + 4 + 2
    [aside] = [request for request in here.model.requests if "Judge these" in heard(request)]
    assert (len(aside.messages), aside.tools) == (1, None)
    assert (await summary(here)).endswith("llm_judge chose b2: Option 2: it is shorter.\n\ndone: b")


async def test_usage_of_the_judge_is_stored_with_the_results_node() -> None:
    usage = Usage(input_tokens=80, output_tokens=20, cache_read_tokens=30, cache_write_tokens=5)
    vote = SampleReply.model_validate({"content": "1", "usage": usage})
    here = await set_up(
        forking("a", "b", recombine="llm_vote"),
        branch_self=BranchSelf(judge=MockModel(lambda _: vote)),
        limits=TurnLimits(price=lambda _, used: used.total_tokens / 100),
    )
    await here.say("fork")
    [results] = await here.of_kind("results")
    assert results.usage == Usage(
        input_tokens=240, output_tokens=60, cache_read_tokens=90, cache_write_tokens=15
    )
    samples: Any = results.data["samples"]
    assert (results.data["cost"], samples["fork"]["requests"]) == (3.0, 3)


async def test_a_long_answer_is_shortened_where_the_recombined_text_follows() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if task(request) is not None:
            return "x" * 500
        return forking("a", "b", recombine="concatenate")(request)

    here = await set_up(decide)
    await here.say("fork")
    assert (await summary(here)).count("x" * 200 + "…") == 2
    assert (await summary(here)).count("x" * 500) == 2


async def _branches(here: Setting) -> list[Node]:
    return await here.of_kind("branch")


async def _summary_at(here: Setting, node: Node) -> str:
    return "".join((await here.results(node)).values())
