"""The user's view of nodes that differs from the model's view."""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue

from anabranch.messages import TextBlock, ToolUseBlock
from anabranch.tree import (
    LEFT,
    NO_RESULT_CONTENT,
    SHOWN,
    WAITS,
    Node,
    Result,
    Tree,
    TurnEnd,
    draw,
    open_questions,
)
from tests.tree.samples import SAMPLE, node


def drawn(
    *nodes: Node, results: tuple[Result, ...] = (), ends: Mapping[str, TurnEnd] | None = None
) -> list[str]:
    """Return the lines of a thread, without kinds and ids."""
    known = {(one.node_id, one.tool_use_id): one for one in results}
    tree = Tree(SAMPLE.thread, nodes, known, {}, ends or {})
    return [line.split(maxsplit=2)[-1] for line in draw(tree)]


START = node("u", None, "user", "Hello.")
QUESTION = replace(node("q", "u", "question", "Book Ulm?"), data={"step_id": "t/elicit.1"})


def test_a_folded_branch_shows_its_description_and_conclusion_only() -> None:
    create = ToolUseBlock(
        id="u1", name="branch_create", input={"description": "Look at the docs", "prompt": "All."}
    )
    end = ToolUseBlock(id="u2", name="branch_return", input={"message": "They are fine."})
    shown: dict[str, JsonValue] = {"tool_use_id": "u1", SHOWN: "Look at the docs"}
    start = replace(node("b", "c", "branch", "Do this subtask."), data=shown)
    lines = drawn(
        START, node("c", "u", "assistant", "", create), start, node("e", "b", "assistant", "", end)
    )
    assert lines[2:] == ["b  Look at the docs", "They are fine. [branch_return]"]


def test_a_question_waits_until_the_user_answers_or_skips_it() -> None:
    answer = replace(node("a", "q", "answer", "yes"), data={"question": "q"})
    assert drawn(START, QUESTION)[-1] == "Book Ulm?  (waits for you)"
    assert drawn(START, QUESTION, answer)[1] == "Book Ulm?"
    assert drawn(START, QUESTION, node("m", "q"))[1] == "Book Ulm?  (left unanswered)"
    assert drawn(START, QUESTION, node("m", "q"), answer)[1] == "Book Ulm?"
    assert drawn(START, replace(QUESTION, data={}))[-1] == "Book Ulm?  (closed)"


def test_a_question_waits_when_another_question_of_its_tool_follows() -> None:
    other = replace(QUESTION, id="p", parent_id="q")
    answer = replace(node("a", "p", "answer", "yes"), data={"question": "p"})
    assert drawn(START, QUESTION, other, answer)[1] == "Book Ulm?  (waits for you)"


USE = ToolUseBlock(id="u1", name="branch_create", input={})
FOLD = (
    START,
    node("c", "u", "assistant", "", USE),
    replace(node("b", "c", "branch", "Book."), data={"tool_use_id": "u1"}),
    replace(QUESTION, parent_id="b"),
)


def test_a_question_in_a_branch_waits_until_the_tool_of_the_branch_has_returned() -> None:
    ended = Result("c", "u1", (TextBlock(text="Its time is over."),), is_error=True)
    shown, none = (TextBlock(text="It runs."),), NO_RESULT_CONTENT
    running = Result("c", "u1", shown, is_error=True, pending=none)
    assert drawn(*FOLD)[-1] == "Book Ulm?  (waits for you)"
    for result, state in [(running, WAITS), (ended, LEFT)]:
        assert drawn(*FOLD, results=(result,))[-1] == f"Book Ulm?  ({state})"
        tree = Tree(SAMPLE.thread, FOLD, {("c", "u1"): result}, {})
        assert bool(open_questions(tree)) is (state == WAITS)


def test_a_question_in_a_branch_is_skipped_when_a_node_follows_the_tools_of_its_caller() -> None:
    assert drawn(*FOLD, node("r", "c", "results"))[3] == "Book Ulm?  (left unanswered)"
    other = replace(node("p", "c", "question", "Sure?"), data={"step_id": "s"})
    assert drawn(*FOLD, other, node("m", "p"))[3] == "Book Ulm?  (left unanswered)"
    said = node("m", "b", "user", "Tell me more.")  # a separate conversation
    aside = (*FOLD[:3], said, replace(QUESTION, parent_id="m"), node("r", "c", "results"))
    assert drawn(*aside)[4] == "Book Ulm?  (waits for you)"


def test_a_closed_question_does_not_wait() -> None:
    tree = Tree(SAMPLE.thread, (START, replace(QUESTION, data={})), {}, {})
    assert open_questions(tree) == []


def test_the_end_of_a_turn_is_shown_until_a_node_follows() -> None:
    failed, stopped = {"u": TurnEnd("No model.")}, {"u": TurnEnd()}
    assert drawn(START, ends=failed) == ["Hello.  (failed: No model)"]
    assert drawn(START, ends=stopped) == ["Hello.  (stopped by you)"]
    beside = replace(node("b", "u", "branch", "Look."), data={"tool_use_id": "u1"})
    assert drawn(START, beside, ends=stopped)[0] == "Hello.  (stopped by you)"
    assert drawn(START, node("r", "u", "assistant", "Hi."), ends=failed)[0] == "Hello."


def replied(text: str, reason: JsonValue, *uses: ToolUseBlock) -> str:
    """Return the last line of a thread whose model replied with ``text`` and stopped for ``reason``."""
    reply = node("r", "u", "assistant", text, *uses)
    return drawn(START, replace(reply, data={"stop_reason": reason}))[-1]


def test_an_incomplete_or_blank_reply_is_shown_as_such() -> None:
    assert replied("It is", "maxTokens") == "It is  (cut off at the limit of tokens)"
    assert replied("", "maxTokens").endswith("(cut off at the limit of tokens)")
    assert replied("No", "content_filter") == "No  (ended by the provider's content filter)"
    assert replied(" ", "endTurn").endswith("(the model wrote no text)")


def test_complete_replies_and_tool_calls_show_no_state() -> None:
    assert replied("It is", "endTurn") == "It is"
    assert replied("It is", ["maxTokens"]) == "It is"
    assert "(" not in replied("", "maxTokens", ToolUseBlock(id="u1", name="look", input={}))


def test_the_result_of_a_call_without_an_id_does_not_end_a_turn() -> None:
    caller = replace(START, content=(ToolUseBlock(id="", name="look", input={}),))
    hostile = Result("u", "", (TextBlock(text="No model."),), is_error=True)
    assert "failed" not in drawn(caller, results=(hostile,))[0]
