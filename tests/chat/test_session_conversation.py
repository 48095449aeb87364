"""Messages, tool calls and answers in a session: the nodes that they add, and the results."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch import Capabilities
from anabranch._asking import Absent
from anabranch.agents import Event, NodeAdded, Question, TurnLimits
from anabranch.chat import Output, Session, enter
from anabranch.errors import StoreError
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, TextBlock, ToolResultBlock
from anabranch.models import ModelError
from anabranch.testing import MockModel, ModelAnswer, calls
from anabranch.tree import Thread, project
from tests.agents.memory import MemoryTrees
from tests.chat.sessions import User, beside, echo, feed, session, shown, text_here, tree_of
from tests.masking import with_any_id
from tests.patience import PATIENCE


async def test_a_message_goes_to_the_model_and_its_answer_comes_back() -> None:
    chat = session()
    [output] = await enter(chat, "  hello there ")
    assert output == Output("message", "You said: hello there", chat.cursor.node_id)
    kinds = [node.kind for node in (await tree_of(chat)).nodes]
    assert kinds == ["user", "assistant"]


async def test_a_thread_begins_with_its_first_message_and_is_titled_after_it() -> None:
    chat = session()
    await feed(chat, "/help", "/config", "/threads")
    assert await chat.store.threads(10) == []
    await feed(chat, "hello\n there")
    assert (await tree_of(chat)).thread.title == "hello there"


@pytest.mark.parametrize("line", ["", "   ", "\t"])
async def test_a_blank_line_does_nothing(line: str) -> None:
    chat = session()
    assert await enter(chat, line) == []
    assert await chat.store.threads(10) == []


async def test_message_and_command_in_one_line_are_done_in_this_order() -> None:
    chat = session()
    outputs = await feed(chat, "hello /label greeting")
    assert outputs[0].content == "You said: hello"
    assert (await tree_of(chat)).refs["greeting"] == chat.cursor.node_id
    outputs = await feed(chat, "add two /add a=1 b=2")
    assert [output.content for output in outputs] == ["You said: add two", "3"]


@pytest.mark.parametrize(
    "line", ["look at /etc/passwd", "what is /up?", "and/or /either", "1 /2", "so /up and away"]
)
async def test_text_that_is_not_a_command_at_the_end_of_a_message_is_part_of_it(line: str) -> None:
    chat = session()
    await feed(chat, "first")
    assert await shown(chat, line) == f"You said: {line}"


async def test_a_command_is_not_run_when_its_message_fails() -> None:
    chat = session()
    outputs = await feed(chat, "break /label x")
    assert [output.type for output in outputs] == ["error"]
    assert "x" not in (await tree_of(chat)).refs


async def test_a_message_may_begin_with_a_slash() -> None:
    assert await shown(session(), "//usr/bin /up") == "You said: /usr/bin /up"


async def test_an_error_of_the_model_is_shown_and_the_conversation_can_continue() -> None:
    chat = session()
    failed = await shown(chat, "break")
    assert failed.startswith("error: An unexpected error: RuntimeError: the line is dead.")
    assert await text_here(chat) == "break"
    assert await shown(chat, "hello") == "You said: hello"
    assert [node.text for node in (await tree_of(chat)).nodes] == ["hello", "You said: hello"]


async def test_a_message_that_failed_stays_if_it_has_been_labelled_or_answered() -> None:
    chat = session()
    await feed(chat, "break", "/label here")
    assert await shown(chat, "hello") == "You said: breakhello"
    await feed(chat, "break", "/fork here", "more", "/fork here", "again")
    assert [node.text for node in (await tree_of(chat)).nodes].count("break") == 2


async def test_auto_lets_a_model_answer_a_question_that_it_failed_to_answer() -> None:
    said: list[str] = []

    def decide(request: SampleRequest) -> str | Exception:
        said.append(request.messages[-1].text)
        return RuntimeError("not now") if len(said) == 1 else "Now."

    chat = session(decide)
    assert await shown(chat, "hello", "/auto") == "Now."
    assert said == ["hello", "hello"]


async def test_auto_after_an_answer_says_the_prompt_that_is_set() -> None:
    chat = session()
    assert await shown(chat, "hello", "/config set auto_prompt go on", "/auto") == "You said: go on"


async def test_auto_after_a_reply_that_was_cut_off_says_the_prompt_and_keeps_the_reply() -> None:
    cut = SampleReply(content=(TextBlock(text="One"),), model="m", stop_reason="maxTokens")
    chat = session(lambda request: cut if len(request.messages) == 1 else echo(request))
    assert await shown(chat, "Count", "/auto") == "You said: ok"
    kinds = [node.kind for node in (await tree_of(chat)).nodes]
    assert kinds == ["user", "assistant", "user", "assistant"]


async def test_auto_continues_after_a_limit_was_reached() -> None:
    chat = session(limits=TurnLimits(max_requests=1))
    assert "error: The turn stopped" in await shown(chat, "fork one")
    assert await shown(chat, "/auto") == "Done."


async def test_auto_runs_tools_that_a_branch_has_called_and_not_been_allowed_to_use() -> None:
    def decide(request: SampleRequest) -> str | SampleReply:
        said = request.messages[-1].text
        if said == "go":
            return calls(("f", "branch_self", {"prompts": ["work"]}))
        if said.endswith("work"):
            return calls(("a", "add", {"a": 40, "b": 2}))
        return f"Result: {_results(request)[-1]}"

    chat = session(decide)
    await feed(chat, "go", "/fork b1")
    assert await shown(chat, "/auto") == "Result: 42"
    assert (await chat.cursor.walk()).branch_of(chat.cursor.node_id) == "b1"


async def test_auto_does_not_run_a_tool_again_that_has_returned() -> None:
    ran: list[str] = []

    async def count(event: Event) -> None:
        if type(event).__name__ == "ToolStarted":
            ran.append("started")

    chat = session(
        lambda request: calls(("a", "add", {"a": 1})) if len(request.messages) < 2 else "ok",
        listener=count,
    )
    await feed(chat, "go", "/root")
    assert await shown(chat, "/auto") == "ok"
    assert ran == ["started"]


async def test_auto_is_refused_before_the_first_message() -> None:
    chat = session()
    assert "has no message yet that the model can continue from" in await shown(
        chat, "a", "/up", "/auto"
    )


# -- tools -----------------------------------------------------------------------------------


async def test_a_tool_is_called_directly_and_the_model_is_not_asked() -> None:
    def decide(request: SampleRequest) -> str:
        raise AssertionError("asked")

    chat = session(decide)
    assert await shown(chat, "/add a=40 b=2") == "42"
    assert await shown(chat, '/add {"a": 1}') == "2"
    assert await shown(chat, "/call add a=1 b=1") == "2"


async def test_the_model_sees_a_users_call_and_its_result() -> None:
    chat = session()
    await feed(chat, "/add a=40 b=2", "what was it?")
    path = await chat.store.path(str(chat.cursor.node_id))
    messages = project(path.nodes, path.results)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    result = messages[2].content[0]
    assert isinstance(result, ToolResultBlock)
    assert result.content[0].model_dump() == {"type": "text", "text": "42"}
    assert messages[2].text == "what was it?"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/add", "a: Field required"),
        ("/add a", "'a' is no argument. Write name=value. Write /add name=value …; names: a, b."),
        ("/add a=x", "a must be a whole number"),
        ('/add {"a": ', "Write /add name=value"),
        ('/add a="', "does not end"),
        ("/add a=1 c=2", "c"),
        ("/call nothing", "Unknown tool 'nothing'. Tools: branch_self, add, book, fail."),
        ("/call", "Write /call TOOL [VALUES…]."),
    ],
)
async def test_a_call_that_does_not_fit_is_refused_without_a_trace(line: str, said: str) -> None:
    chat = session()
    [output] = await enter(chat, line)
    assert output.type == "error"
    assert said in output.content
    assert await chat.store.threads(10) == []


async def test_a_tool_that_fails_is_an_error_without_its_secrets() -> None:
    [output] = await enter(session(), "/fail")
    assert output.type == "error"
    assert with_any_id(output.content) == "Error executing tool fail (error ID)"


@pytest.mark.parametrize(
    "typed",
    ["\"['a','b']\" allow_work=True", "['a', 'b'] parallel=false", '\'["a", "b"]\''],
    ids=["quoted", "Python", "JSON"],
)
async def test_branch_self_reads_typed_arguments_as_it_reads_a_models(typed: str) -> None:
    assert "2/2 branches completed" in await shown(session(), f"/branch_self prompts={typed}")


async def test_branch_self_takes_prose_as_one_prompt() -> None:
    assert "1/1 branches completed" in await shown(session(), '/branch_self prompts="one, two"')


async def test_branches_can_be_opened_directly() -> None:
    chat = session()
    assert "2/2 branches completed" in await shown(
        chat, '/branch_self prompts=["a b", "c"] parallel=false'
    )
    assert await shown(chat, "/fork b2") == (
        "b2 · assistant · 2 of 3 (/left, /right)\nYou said: (self-prompt): c"
    )


# -- questions -------------------------------------------------------------------------------

YES, NO = ElicitReply(action="accept", content={"ok": True}), ElicitReply(action="decline")


async def test_a_tools_question_goes_to_the_user() -> None:
    user = User(YES)
    chat = session(user=user)
    assert await shown(chat, "/book place=Ulm") == "Ulm: accept"
    assert user.asked == ["Book Ulm?"]


async def test_a_question_answered_again_starts_a_branch_with_another_result() -> None:
    chat = session(user=User(YES))
    await feed(chat, "book Ulm")
    assert await shown(chat, "/answer decline") == "Done."
    tree = await tree_of(chat)
    [question] = [node for node in tree.nodes if node.kind == "question"]
    answers = [node for node in tree.nodes if node.parent_id == question.id]
    assert len(answers) == 2
    assert await _results_here(chat) == ["Ulm: decline"]
    await feed(chat, "/left")
    assert await _results_here(chat) == ["Ulm: accept"]


async def test_answer_takes_values_or_json_or_a_word() -> None:
    chat = session(user=User(NO))
    await feed(chat, "book Ulm")
    for typed in ("ok=true note='all right'", '{"ok": true}', "cancel"):
        assert await shown(chat, f"/answer {typed}") == "Done."
    tree = await tree_of(chat)
    answers = [node.text for node in tree.nodes if node.kind == "answer"]
    assert answers == ["decline", '{"ok":true,"note":"all right"}', '{"ok":true}', "cancel"]


async def test_answer_without_values_asks_the_user() -> None:
    user = User(NO, YES)
    chat = session(user=user)
    await feed(chat, "book Ulm", "/answer")
    assert user.asked == ["Book Ulm?", "Book Ulm?"]
    assert "Ulm: accept" in await _results_here(chat)


@pytest.mark.parametrize("typed", ["ok", "{", "ok=maybe"])
async def test_an_answer_that_cannot_be_read_changes_nothing(typed: str) -> None:
    chat = session(user=User(YES))
    await feed(chat, "book Ulm")
    before = chat.cursor.node_id, len((await tree_of(chat)).nodes)
    assert "Write /answer with name=value" in await shown(chat, f"/answer {typed}")
    assert (chat.cursor.node_id, len((await tree_of(chat)).nodes)) == before


async def test_an_answer_that_does_not_fit_is_asked_for_again() -> None:
    user = User(NO, YES)
    chat = session(user=user)
    await feed(chat, "book Ulm", "/answer note=x")
    assert "The last answer did not fit: ok: Field required." in user.asked[1]
    assert "Ulm: accept" in await _results_here(chat)


async def test_without_a_question_there_is_nothing_to_answer() -> None:
    assert "No tool has asked a question" in await shown(session(), "hello", "/answer decline")


WAITING = "Book Ulm?\n(waits for you; /answer answers it, a message skips it)"


async def test_an_open_question_is_shown_when_the_thread_is_opened_again() -> None:
    chat = await _interrupted_at_a_question()
    again = beside(chat)
    outputs = await again.start()
    assert outputs[-1].content == WAITING
    assert "A tool waits for your answer" in await shown(again, "/auto")
    assert await shown(again, "/answer ok=true") == "Done."
    assert await _results_here(again) == ["Ulm: accept"]


async def test_a_message_at_an_open_question_leaves_it_unanswered() -> None:
    chat = await _interrupted_at_a_question()
    assert "Book Ulm?  (waits for you)" in await shown(chat, "/tree")
    assert await shown(chat, "never mind") == "You said: never mind"
    assert "Book Ulm?  (left unanswered)" in await shown(chat, "/tree")
    assert "Book Ulm?\n(left unanswered; /answer answers it)" in await shown(chat, "/up")
    assert await shown(chat, "/answer ok=true") == "Done."
    assert "Book Ulm?\n" in await shown(chat, "/tree")
    assert "(answered: " in await shown(chat, "/up")


# -- how a turn ends -------------------------------------------------------------------------


async def test_a_reopened_thread_shows_the_failure_of_its_turn() -> None:
    chat = session()
    assert await shown(chat, "break it") == f"error: {DEAD}"
    again = beside(chat)
    assert (await again.start())[-1].content == f"break it\n(failed: {DEAD[:-1]}; /auto retries)"
    assert f"break it  (failed: {DEAD[:51]}…)" in await shown(again, "/tree")


async def test_a_reply_that_broke_off_is_tried_again_as_another_version() -> None:
    async def breaking() -> AsyncIterator[str]:
        yield "Once upon"
        raise ModelError("Busy.")

    replies: list[object] = [breaking(), "Once upon a time.", "And then?"]
    heard: list[list[str]] = []

    def decide(request: SampleRequest) -> object:
        heard.append([each.text for each in request.messages])
        return replies.pop(0)

    chat = session(decide)
    await feed(chat, "tell")
    place = await shown(chat, f"/fork {chat.cursor.node_id}")
    assert place.endswith("Once upon\n(failed: Busy; /auto retries)")
    assert await shown(chat, "/auto") == "Once upon a time."
    assert heard[-1] == ["tell"]
    assert "2 of 2" in await shown(chat, f"/fork {chat.cursor.node_id}")
    assert await shown(chat, "/auto") == "And then?"  # that reply is complete
    assert heard[-1][:2] == ["tell", "Once upon a time."]


async def test_a_turn_that_was_stopped_is_no_failure() -> None:
    waiting = asyncio.Event()

    async def never() -> AsyncIterator[str | SampleReply]:
        yield "Half an"
        waiting.set()
        await asyncio.Event().wait()

    chat = session(lambda _: never())
    task = asyncio.create_task(enter(chat, "hello"))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = beside(chat)
    assert (await again.start())[-1].content == "Half an\n(stopped by you; /auto continues)"
    assert await shown(again, "go on") == "You said: go on"
    assert "stopped" not in await shown(again, "/tree")


DEAD = "An unexpected error: RuntimeError: the line is dead. The log has the details."


async def _interrupted_at_a_question() -> Session:
    asked = asyncio.Event()

    class Silent(Absent):
        capabilities = Capabilities()

        async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    chat = session(user=Silent())
    task = asyncio.create_task(enter(chat, "book Ulm"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return chat


# -- interruption ----------------------------------------------------------------------------


async def test_an_interrupted_reply_is_stored_and_the_conversation_continues_from_it() -> None:
    halfway = asyncio.Event()

    async def stream() -> AsyncIterator[str | SampleReply]:
        yield "Half an"
        yield " answer"
        halfway.set()
        await asyncio.Event().wait()

    chat = session(lambda request: stream() if request.messages[-1].text == "go" else echo(request))
    task = asyncio.create_task(enter(chat, "go"))
    await halfway.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await text_here(chat) == "Half an answer"
    assert await shown(chat, "and?") == "You said: and?"
    assert [node.kind for node in (await tree_of(chat)).nodes] == ["user", "assistant"] * 2


async def test_the_cursor_follows_a_node_whose_event_an_interruption_has_lost() -> None:
    caught: list[asyncio.Task[list[Output]]] = []

    async def interrupt(event: Event) -> None:
        if isinstance(event, NodeAdded) and event.node.role == "assistant":
            caught[0].cancel()
            await asyncio.sleep(0)

    chat = session(listener=interrupt)
    caught.append(asyncio.create_task(enter(chat, "hello")))
    with pytest.raises(asyncio.CancelledError):
        await caught[0]
    assert await text_here(chat) == "You said: hello"
    assert not (await tree_of(chat)).ends  # the reply is complete


class Failing(MemoryTrees):
    fails = False

    async def refs(self, thread_id: str) -> dict[str, str]:
        if self.fails:
            raise StoreError("The disk is gone.")
        return await super().refs(thread_id)


async def test_a_store_that_fails_hides_neither_an_interruption_nor_another_error() -> None:
    halfway = asyncio.Event()

    async def stream() -> AsyncIterator[str | SampleReply]:
        yield "Half an answer"
        halfway.set()
        await asyncio.Event().wait()

    def decide(request: SampleRequest) -> object:
        store.fails = True
        said = request.messages[-1].text
        return stream() if said == "go" else ModelError("No credit. Buy some.")

    store = Failing()
    chat = session(decide, store=store)
    task = asyncio.create_task(enter(chat, "go"))
    await halfway.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await shown(chat, "buy") == "error: No credit. Buy some."
    store.fails = False
    assert await shown(chat, "buy") == "error: No credit. Buy some."
    store.fails = False
    said = [node.text for node in (await chat.cursor.walk()).path(chat.cursor.node_id)]
    assert said == ["go", "Half an answer", "buy"]


async def test_two_sessions_in_one_thread_both_succeed_as_branches() -> None:
    first = session()
    await feed(first, "hello")
    second = beside(first)
    await second.start()
    await asyncio.gather(enter(first, "one"), enter(second, "two"))
    await asyncio.gather(enter(first, "one more"), enter(second, "two more"))
    walk = await first.cursor.walk()
    said = [[node.text for node in walk.path(chat.cursor.node_id)] for chat in (first, second)]
    assert said == [
        ["hello", "You said: hello", w, f"You said: {w}", f"{w} more", f"You said: {w} more"]
        for w in ("one", "two")
    ]


async def test_two_sessions_that_start_one_thread_simultaneously_both_succeed() -> None:
    class Meeting(MemoryTrees):
        """A store whose first two readers of the thread wait for each other, so that both find none."""

        def __init__(self) -> None:
            super().__init__()
            self.asking = 0
            self.both = asyncio.Event()

        async def thread(self, thread_id: str) -> Thread | None:
            found = await super().thread(thread_id)
            self.asking += 1
            if self.asking == 2:
                self.both.set()
            await self.both.wait()
            return found

    store = Meeting()
    first = session(store=store, thread_id="t")
    second = session(store=store, thread_id="t", naming=first.agent.dependencies.naming)
    async with asyncio.timeout(PATIENCE):
        outputs = await asyncio.gather(enter(first, "one"), enter(second, "two"))
    assert [output.content for [output] in outputs] == ["You said: one", "You said: two"]
    assert sorted(node.text for node in await store.beginnings("t")) == ["one", "two"]


async def test_an_error_when_a_thread_is_created_is_shown() -> None:
    class Full(MemoryTrees):
        async def create_thread(self, thread: Thread) -> None:
            raise StoreError("The disk is full.")

    assert await shown(session(store=Full()), "hello") == "error: The disk is full."


# -- branches --------------------------------------------------------------------------------


async def test_broadcast_says_something_at_each_leaf_below_and_stays() -> None:
    chat = session()
    await feed(chat, "fork one two", "/fork b1", "inner", "/root")
    before = chat.cursor.node_id
    outputs = await feed(chat, "/broadcast all of you")
    assert [output.content for output in outputs] == [
        "[b1] You said: all of you",
        "[b2] You said: all of you",
        "You said: all of you",
    ]
    assert chat.cursor.node_id == before
    walk = await chat.cursor.walk()
    for leaf in walk.leaves(chat.cursor.node_id):
        assert [node.text for node in walk.path(leaf.id)][-2:] == [
            "all of you",
            "You said: all of you",
        ]


async def test_a_broadcast_names_the_branches_that_fail_and_the_others_answer() -> None:
    def decide(request: SampleRequest) -> object:
        said = " ".join(message.text for message in request.messages)
        if "(self-prompt): bad" in said and "all" in request.messages[-1].text:
            return RuntimeError("gone")
        return echo(request)

    chat = session(decide)
    outputs = await feed(chat, "fork good bad", "/root", "/broadcast all")
    assert [output.type for output in outputs] == ["message", "error", "message"]
    assert outputs[1].content.startswith("[b2] ")


async def test_a_broadcast_at_a_leaf_is_a_message() -> None:
    chat = session()
    assert await shown(chat, "hello", "/broadcast more") == "You said: more"
    again = beside(chat)
    await again.start()
    assert again.cursor.node_id == chat.cursor.node_id
    assert await text_here(chat) == "You said: more"


async def test_combine_leaves_lists_the_ways_and_combines_by_number_or_name() -> None:
    chat = session()
    await feed(chat, "fork one two", "/root")
    listed = await shown(chat, "/combine_leaves")
    assert listed.splitlines()[0] == "1. concatenate"
    assert listed.splitlines()[-1] == "/combine_leaves HOW combines 3 leaves."
    combined = await shown(chat, "/combine_leaves 1")
    assert "1. b1: You said: (self-prompt): one" in combined
    assert "3. main: Done." in combined
    node = await chat.cursor.node()
    assert node is not None
    assert node.kind == "user"
    assert node.text.startswith("(combined from 3 branches): ")
    await feed(chat, "/undo")
    assert "Concatenated" in await shown(chat, "/combine_leaves CONCATENATE")


async def test_combining_by_a_model_leaves_the_conversation_alone() -> None:
    def decide(request: SampleRequest) -> object:
        return "2" if len(request.messages) == 1 and "Option" in _text(request) else echo(request)

    chat = session(decide)
    outputs = await feed(chat, "fork one two", "/root", "/combine_leaves llm_vote")
    assert outputs[0].content == "You said: (self-prompt): two"
    assert outputs[1].content.startswith("llm_vote chose b2")
    model = chat.agent.dependencies.model
    assert isinstance(model, MockModel)
    assert all(len(request.messages) == 1 for request in model.requests[-3:])


@pytest.mark.parametrize(("how", "said"), [("9", "from 1 to 4"), ("llm_guess", "Unknown way")])
async def test_an_unknown_way_to_combine_is_refused(how: str, said: str) -> None:
    chat = session()
    assert said in await shown(chat, "fork one two", "/root", f"/combine_leaves {how}")


async def test_only_complete_answers_are_combined() -> None:
    """Excluded: an open question, a failed branch, an incomplete answer, and an empty answer."""
    chat = await _interrupted_at_a_question()

    async def break_off() -> AsyncIterator[str | SampleReply]:
        yield "Half an"
        raise RuntimeError("the line is dead")

    def decide(request: SampleRequest) -> ModelAnswer:
        match request.messages[-1].text.split():
            case ["half"]:
                return break_off()
            case ["blank"]:
                return " "
            case [*_, "(self-prompt):", "bad"]:
                return RuntimeError("gone")
            case _:
                return echo(request)

    chat.switch(MockModel(decide), "mock")
    await feed(chat, "/root", "/up", "half", "/root", "/up", "blank", "/root", "/up")
    await feed(chat, "fork one bad", "/root", "/up")
    assert len((await chat.cursor.walk()).leaves(None)) == 6
    combined = await shown(chat, "/combine_leaves concatenate")
    assert combined.splitlines()[::2] == ["1. b3.1: You said: (self-prompt): one", "2. b3: Done."]


async def test_a_single_leaf_cannot_be_combined() -> None:
    assert "needs at least two answered branches" in await shown(
        session(), "a", "/combine_leaves 1"
    )


def _text(request: SampleRequest) -> str:
    return "".join(message.text for message in request.messages)


def _results(request: SampleRequest) -> list[str]:
    return [
        "".join(part.text for part in block.content if part.type == "text")
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]


async def _results_here(chat: Session) -> list[str]:
    path = await chat.store.path(str(chat.cursor.node_id))
    messages = project(path.nodes, path.results)
    return _results(SampleRequest(messages=messages, max_tokens=1))
