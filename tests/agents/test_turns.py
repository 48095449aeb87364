"""One turn on the tree: the model, its tools, their questions, and the nodes stored at its end."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import anyio
import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, ToolSpec, Usage, tool
from anabranch._telemetry import log_fields
from anabranch.agents import (
    Agent,
    Event,
    NodeAdded,
    Outcome,
    Question,
    TextReceived,
    ToolEnded,
    ToolNoticed,
    ToolStarted,
    ToolUse,
    TurnLimitError,
    TurnLimits,
    question_of,
    random_names,
)
from anabranch.errors import StoreError
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, TextBlock, text_of
from anabranch.testing import MockModel, ModelFunction, calls
from anabranch.tree import (
    NO_RESULT,
    Node,
    Result,
    TreeStore,
    is_no_result,
    thread_from_json,
    tree_to_json,
)
from tests.agents.harness import Answering, Setting, heard, interrupted, results_in, set_up
from tests.agents.memory import MemoryTrees
from tests.masking import with_any_id
from tests.patience import PATIENCE

NOTHING: Mapping[str, Any] = {}


class Card(BaseModel):
    number: int


@tool
async def pick(ctx: BranchContext, prompt: str = "Which?") -> str:
    """Let the user pick a card."""
    answer = await ctx.elicit(Card, prompt)
    return f"card {answer.content.number}" if isinstance(answer, Accepted) else answer.action


@tool
async def weather(ctx: BranchContext, city: str) -> str:
    await ctx.notify("looking")
    return f"rain in {city}"


@tool
async def broken(ctx: BranchContext) -> str:
    raise RuntimeError("the password is 1234")


@tool
async def refusing(ctx: BranchContext) -> str:
    raise ToolError("Not on Sundays.")


def once(*uses: tuple[str, str, Mapping[str, Any]], then: str = "done") -> ModelFunction:
    """A model that calls these tools first, and then ends the turn."""

    def decide(request: SampleRequest) -> SampleReply | str:
        return then if results_in(request.messages[-1].content) else calls(*uses, text="let me see")

    return decide


def picking(number: int) -> Answering:
    return Answering(lambda _: ElicitReply(action="accept", content={"number": number}))


async def test_a_turn_runs_tools_until_the_model_calls_none_and_reports_each_event() -> None:
    here = await set_up(once(("u1", "weather", {"city": "Linz"})), tools=[weather])
    end = await here.say("hello")
    assert [type(event) for event in here.events] == [
        *[NodeAdded, TextReceived, TextReceived, TextReceived, NodeAdded],
        *[ToolStarted, ToolNoticed, ToolEnded, NodeAdded],
        *[TextReceived, NodeAdded],
    ]
    tree = await here.check()
    assert [node.kind for node in tree.nodes] == ["user", "assistant", "results", "assistant"]
    assert (end.text, await here.agent.head(here.thread_id)) == ("done", end.id)
    assert results_in(here.model.requests[-1].messages[-1].content) == {"u1": "rain in Linz"}


async def test_tools_of_one_answer_run_at_the_same_time() -> None:
    barrier = asyncio.Barrier(3)

    @tool
    async def meet(ctx: BranchContext) -> str:
        await barrier.wait()
        return "met"

    here = await set_up(
        once(*((f"u{number}", "meet", NOTHING) for number in range(3))), tools=[meet]
    )
    with anyio.fail_after(PATIENCE):
        await here.say("hello")
    assert set(results_in(here.model.requests[-1].messages[-1].content).values()) == {"met"}


async def test_an_unexpected_error_is_masked_and_a_refusal_reaches_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = {"a": "broken", "b": "refusing", "c": "weather", "d": "missing"}
    here = await set_up(
        once(*((use, name, NOTHING) for use, name in names.items())),
        tools=[broken, refusing, weather],
    )
    await here.say("hello")
    await here.check()
    results = results_in(here.model.requests[-1].messages[-1].content)
    assert with_any_id(results["a"]) == "Error executing tool broken (error ID)"
    assert results["b"] == "Not on Sundays."
    assert "city" in results["c"]
    assert results["d"].startswith("There is no tool 'missing'. Tools: branch_self, broken")
    errors = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert "the password is 1234" in errors


@pytest.mark.parametrize("kind", [RuntimeError, StoreError])
async def test_an_unexpected_error_of_an_agent_tool_is_masked_and_logged(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """The call machine does not run an agent tool, so the agent masks the error."""

    class Careless:
        name: str = "careless"
        spec: ToolSpec = ToolSpec(name="careless", input_schema={})
        placeholder: str | None = None

        async def use(self, here: ToolUse) -> Outcome:
            raise kind("the password is 1234")

    uses = [("a", "careless", NOTHING), ("b", "weather", {"city": "Linz"})]
    here = await set_up(once(*uses), tools=[Careless(), weather])
    await here.say("hello")
    await here.check()
    results = results_in(here.model.requests[-1].messages[-1].content)
    assert with_any_id(results["a"]) == "Error executing tool careless (error ID)"
    assert results["b"] == "rain in Linz"
    [logged] = [record for record in caplog.records if record.exc_info]
    shown = results["a"]
    assert logged.message == f"tool 'careless' raised an unexpected exception: {shown}"


async def test_the_record_of_a_failing_tool_has_its_call(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def careless(ctx: BranchContext) -> str:
        seen.append(log_fields())
        raise RuntimeError("the password is 1234")

    seen: list[dict[str, str]] = []

    def note(record: logging.LogRecord) -> bool:
        seen.append(log_fields())
        return bool(record)

    here = await set_up(once(("a", "careless", NOTHING)), tools=[careless])
    caplog.handler.addFilter(note)
    await here.say("hello")
    caplog.handler.removeFilter(note)
    assert len(caplog.records) == 1
    [in_tool, in_record] = seen
    assert in_record["call"] == in_tool["call"]


async def test_a_question_that_cannot_be_stored_ends_the_turn_and_is_asked_by_the_next() -> None:
    full = [True]

    def refuse(nodes: Sequence[Node], _: Sequence[Result]) -> None:
        if full and any(node.kind == "question" for node in nodes):
            raise StoreError("The disk /var/secret is full.")

    store = MemoryTrees(refuse)
    here = await set_up(once(("u1", "pick", {})), tools=[pick], store=store, user=picking(3))
    with pytest.raises(StoreError):
        await here.say("hello")
    await here.check()
    full.clear()
    assert (await here.agent.resume(await here.caller())).text == "done"
    assert results_in(here.model.requests[-1].messages[-1].content) == {"u1": "card 3"}


async def test_a_step_next_to_a_question_ends_before_the_question_is_shown() -> None:
    effects: list[str] = []

    @tool
    async def busy(ctx: BranchContext) -> str:
        """Ask, and pay at the same time."""

        async def work(ctx: BranchContext) -> None:
            await ctx.step(effects.append, "paid")

        async def ask(ctx: BranchContext) -> str:
            return (await ctx.elicit(Card, "Which?")).action

        return (await ctx.gather(ctx.branch(work), ctx.branch(ask)))[1]

    def answer(_: Question) -> ElicitReply:
        assert effects == ["paid"]
        return ElicitReply(action="accept", content={"number": 1})

    here = await set_up(once(("u1", "busy", {})), tools=[busy], user=Answering(answer))
    await here.say("hello")
    [question] = await here.of_kind("question")
    end = await here.agent.answer(question.id, ElicitReply(action="decline"))
    assert (end.text, effects) == ("done", ["paid"])
    assert results_in(here.model.requests[-1].messages[-1].content) == {"u1": "decline"}


async def test_an_answer_to_something_else_than_a_question_is_refused() -> None:
    here = await set_up(lambda _: "hi")
    end = await here.say("hello")
    with pytest.raises(ToolError, match="There is no question"):
        await here.agent.answer(end.id, ElicitReply(action="decline"))


async def test_the_text_of_an_interrupted_reply_is_stored() -> None:
    speaking = asyncio.Event()

    async def speak() -> AsyncIterator[str | SampleReply]:
        yield "half "
        speaking.set()
        await asyncio.Event().wait()

    here = await set_up(lambda _: speak())
    await interrupted(here.say("hello"), speaking)
    tree = await here.check()
    assert [(node.kind, node.text) for node in tree.nodes] == [
        ("user", "hello"),
        ("assistant", "half "),
    ]
    assert tree.nodes[-1].data["stop_reason"] == "interrupted"
    assert tree.refs["head"] == tree.nodes[-1].id


async def test_the_text_of_a_reply_that_fails_is_stored_and_the_error_raised() -> None:
    async def speak() -> AsyncIterator[str | SampleReply]:
        yield "half "
        raise OSError("the line is dead")

    async def stop() -> AsyncIterator[str | SampleReply]:
        yield "half "

    def streaming(
        said: Callable[[], AsyncIterator[str | SampleReply]], request: SampleRequest
    ) -> AsyncIterator[str | SampleReply]:
        return said()

    cases: list[tuple[Callable[[], AsyncIterator[str | SampleReply]], type[Exception]]] = [
        (speak, OSError),
        (stop, ToolError),
    ]
    for said, error in cases:
        here = await set_up(partial(streaming, said))
        with pytest.raises(error):
            await here.say("hello")
        tree = await here.check()
        assert (tree.nodes[-1].text, tree.nodes[-1].data["stop_reason"]) == ("half ", "error")


@pytest.mark.parametrize("cancelled", [True, False])
async def test_the_reason_why_a_reply_ends_is_raised_even_if_its_text_cannot_be_stored(
    cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(nodes: Sequence[Node], _: Sequence[Result]) -> None:
        if nodes[0].kind == "assistant":
            raise StoreError("No space is left.")

    speaking = asyncio.Event()

    async def speak() -> AsyncIterator[str | SampleReply]:
        yield "half "
        speaking.set()
        if not cancelled:
            raise OSError("the line is dead")
        await asyncio.Event().wait()

    here = await set_up(lambda _: speak(), store=MemoryTrees(refuse))
    turn = asyncio.create_task(here.say("hello"))
    with anyio.fail_after(PATIENCE):
        await speaking.wait()
        if cancelled:
            turn.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else OSError):
            await turn
    [logged] = [record for record in caplog.records if record.exc_info]
    assert "could not be stored" in logged.message
    assert [node.kind for node in (await here.tree()).nodes] == ["user"]


async def test_an_interrupted_tool_leaves_a_thread_that_can_be_continued() -> None:
    running = asyncio.Event()

    @tool
    async def forever(ctx: BranchContext) -> str:
        running.set()
        await asyncio.Event().wait()
        return "never"

    here = await set_up(once(("u1", "forever", {}), then="never mind"), tools=[forever])
    await interrupted(here.say("hello"), running)
    end = await here.say("leave it")
    await here.check()
    assert end.text == "never mind"
    assert results_in(here.model.requests[-1].messages[-1].content) == {"u1": NO_RESULT}
    [result] = (await here.tree()).results.values() or [None]
    assert result is None or is_no_result(result.content)


@pytest.mark.parametrize("name", ["quotes", "fails"])
async def test_a_result_is_ordinary_with_the_sentence_of_an_interruption(name: str) -> None:
    """Only the mark of a block says that a tool has no result, and no tool can set the mark."""

    @tool
    async def quotes(ctx: BranchContext) -> TextBlock:
        """Return the sentence, and the mark."""
        return TextBlock(text=NO_RESULT, mark="no_result")

    @tool
    async def fails(ctx: BranchContext) -> str:
        raise ToolError(NO_RESULT)

    here = await set_up(once(("u1", name, {}), then="done"), tools=[quotes, fails])
    await here.say("hello")
    tree = await here.tree()
    [result] = tree.results.values()
    assert not is_no_result(result.content)
    assert text_of(result.content) == NO_RESULT
    assert "no_result" not in json.dumps(tree_to_json(tree))


async def test_a_tool_that_has_asked_is_not_run_again_by_continuing() -> None:
    asked = asyncio.Event()
    effects: list[str] = []

    @tool
    async def pay(ctx: BranchContext) -> str:
        """Pay twice, and ask in between and afterwards."""
        await ctx.step(effects.append, "paid")
        await ctx.elicit(Card, "Which?")
        await ctx.elicit(Card, "And now?")
        return "never"

    async def answer(question: Question) -> ElicitReply:
        if question.message == "And now?":
            asked.set()
            await asyncio.Event().wait()
        return ElicitReply(action="decline")

    decide = once(("u1", "weather", {"city": "Linz"}), ("u2", "pay", {}))
    here = await set_up(decide, tools=[weather, pay], user=Answering(answer))
    await interrupted(here.say("hello"), asked)
    caller = await here.caller()
    with (
        anyio.fail_after(PATIENCE),
        pytest.raises(ToolError, match=r"'pay' waits at the question 'And now\?', below this node"),
    ):
        await here.agent.resume(caller)
    assert effects == ["paid"]
    await here.check()


async def test_a_question_of_an_export_says_why_it_cannot_be_answered_again() -> None:
    here = await set_up(once(("u1", "pick", {})), tools=[pick], user=picking(3))
    await here.say("hello")
    exported = json.dumps(tree_to_json(await here.tree())).encode()
    loaded = thread_from_json(exported, random_names, 0.0)
    await here.agent.store.create_thread(loaded.thread)
    await here.agent.store.append(loaded.nodes, results=loaded.results)
    [question] = [node for node in loaded.nodes if node.kind == "question"]
    with pytest.raises(ToolError, match="is closed"):
        question_of(question)
    with pytest.raises(ToolError, match="is closed"):
        question_of(replace(question, data={"request": {}}))
    with pytest.raises(ToolError, match="is closed"):
        await here.agent.answer(question.id, ElicitReply(action="decline"))
    assert [node.kind for node in await here.agent.store.children(question.id)] == ["answer"]


@pytest.mark.parametrize(("given", "ids"), [("u1", ["u1", "u1_2"]), ("", ["use", "use_2"])])
async def test_each_call_gets_an_id_when_a_model_repeats_ids_or_gives_none(
    given: str, ids: list[str]
) -> None:
    """Without an id, a call's result looks like the end of a turn, which is a result of no call."""
    decide = once(*((given, "weather", {"city": city}) for city in ("Linz", "Graz")))
    here = await set_up(decide, tools=[weather])
    await here.say("hello")
    await here.say("and now?")
    assert (await here.check()).ends == {}
    results = results_in(here.model.requests[1].messages[-1].content)
    assert results == dict(zip(ids, ["rain in Linz", "rain in Graz"], strict=True))


async def test_an_endless_turn_is_stopped_and_the_thread_continues() -> None:
    stubborn = calls(("u1", "weather", {"city": "Linz"}))
    limits = TurnLimits(max_requests=3)
    here = await set_up(lambda _: stubborn, tools=[weather], limits=limits)
    with pytest.raises(TurnLimitError, match="3 of 3 requests"):
        await here.say("hello")
    assert len(here.model.requests) == 3
    tree = await here.check()
    path = await here.agent.store.path(tree.refs["head"])
    assert path.nodes[-1].kind == "results"


async def test_tokens_and_costs_are_counted_and_limited() -> None:
    usage = Usage(input_tokens=8_000, output_tokens=2_000)
    stubborn = calls(("u1", "weather", {"city": "Linz"}), usage=usage)

    def price(_: str, used: Usage) -> float:
        return used.total_tokens / 10_000

    for limits, what in [
        (TurnLimits(max_tokens=25_000), "30000 of 25000 tokens"),
        (TurnLimits(max_cost=2.5, price=price), "3 of 2.5 cost"),
    ]:
        here = await set_up(lambda _: stubborn, tools=[weather], limits=limits)
        with pytest.raises(TurnLimitError, match=what):
            await here.say("hello")
        answers = await here.of_kind("assistant")
        assert [node.usage for node in answers] == [usage] * 3
        assert answers[0].data.get("cost") == (1.0 if limits.price else None)


async def test_two_messages_at_one_node_make_two_branches() -> None:
    here = await set_up(lambda request: f"re {heard(request)}")
    start = await here.say("hello")
    async with anyio.create_task_group() as group:
        for text in ("one", "two"):
            group.start_soon(partial(here.say, text, at=start.id))
    tree = await here.check()
    after = [node.text for node in tree.nodes if node.parent_id == start.id]
    assert sorted(after) == ["one", "two"]


async def test_a_blank_message_or_an_unknown_thread_is_refused() -> None:
    here = await set_up(lambda _: "hi")
    with pytest.raises(ToolError, match="blank"):
        await here.say("  ")
    with pytest.raises(ToolError, match="There is no thread 'x'"):
        await here.agent.say("x", "hello")
    assert (await here.tree()).nodes == ()


async def noting_twice(
    change: Callable[[SampleReply], SampleReply],
) -> tuple[Setting, Mapping[str, str], list[str]]:
    """Let a model call `note` twice in one reply; return the results, and the noted texts."""
    ran: list[str] = []

    @tool
    async def note(ctx: BranchContext, text: str = "all") -> str:
        ran.append(text)
        return "noted"

    def decide(request: SampleRequest) -> SampleReply | str:
        if results_in(request.messages[-1].content):
            return "otherwise, then"
        return change(calls(("u1", "note", {"text": "whole"}), ("u2", "note", {})))

    here = await set_up(decide, tools=[note])
    assert (await here.say("note")).text == "otherwise, then"
    await here.check()
    return here, results_in(here.model.requests[-1].messages[-1].content), ran


async def test_a_reply_cut_inside_a_tool_call_runs_no_incomplete_call() -> None:
    """A token limit can cut arguments anywhere, even before the first argument."""
    _, results, ran = await noting_twice(
        lambda reply: reply.model_copy(update={"stop_reason": "maxTokens"})
    )
    assert (results["u1"], ran) == ("noted", ["whole"])
    assert "was cut" in results["u2"]


async def test_a_call_whose_arguments_are_no_object_is_answered_and_not_run() -> None:
    """The other calls of the reply run, and the thread can be read again unchanged."""
    malformed = '{"text": "a"}{"text": "b"}'

    def broken(reply: SampleReply) -> SampleReply:
        last = reply.content[-1].model_copy(update={"malformed": malformed})
        return reply.model_copy(update={"content": (*reply.content[:-1], last)})

    here, results, ran = await noting_twice(broken)
    assert (results["u1"], ran) == ("noted", ["whole"])
    assert "must be one JSON object" in results["u2"]
    assert malformed in results["u2"]
    stored = [each.malformed for node in (await here.tree()).nodes for each in node.tool_uses]
    assert stored == [None, malformed]


class ReadTrees:
    def __init__(self) -> None:
        self._trees = MemoryTrees()
        self.readings: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in {"around", "children", "node", "path", "refs", "thread", "tree"}:
            self.readings.append(name)
        return getattr(self._trees, name)


async def test_a_turn_reads_its_path_once_for_all_its_requests_and_tools() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        number = len(request.messages)
        if number in {1, 7}:  # of the first turn, and after two calls
            return "Rain."
        return calls((f"use_{number}", "weather", {"city": "Rome"}))

    store = ReadTrees()
    here = await set_up(decide, tools=[weather], store=cast("TreeStore", store))
    await here.say("Hello.")
    store.readings.clear()
    assert (await here.say("What is it like?")).text == "Rain."
    assert store.readings == ["around"]
    assert len(await here.of_kind("results")) == 2
    await here.check()


async def test_a_plain_function_is_a_listener() -> None:
    events = list[Event]()
    agent = Agent(MemoryTrees(), MockModel(lambda _: "Hello."), listener=events.append)
    reply = await agent.say((await agent.begin()).id, "Hi")
    assert NodeAdded(reply) in events


async def test_a_wrong_kind_of_thread_node_or_listener_is_refused() -> None:
    trees: Any = MemoryTrees()
    given: Any = [print]
    with pytest.raises(TypeError, match=r"Agent\(\) takes a function of one event as listener; it"):
        Agent(trees, MockModel(str), listener=given)
    agent: Any = Agent(trees, MockModel(lambda _: "Hello."))
    thread = await agent.begin()
    reply = await agent.say(thread.id, "Hi")
    for refused, sentence in (
        (agent.say(thread, "Hi"), "agent.say() takes the id of a thread, for example thread.id"),
        (agent.say(thread.id, "Hi", at=reply), "agent.say() takes the id of a node, for example"),
        (agent.put(thread, [(None, "Hi")]), "agent.put() takes the id of a thread, for example"),
        (agent.answer(reply, True), "agent.answer() takes the id of a question, for example"),
        (agent.add_answer(reply, True), "agent.add_answer() takes the id of a question, for"),
        (
            agent.resume(reply.id),
            "This method takes a node, for example await agent.store.node(id)",
        ),
        (agent.open_questions(None), "This method takes a node, for example await agent.store"),
    ):
        with pytest.raises(TypeError, match=re.escape(sentence)):
            await refused
