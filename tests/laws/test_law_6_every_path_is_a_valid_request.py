"""Law 6: any path of the conversation tree projects to a valid provider request.

The judge is a set of rules that providers publish (``tests/models/provider_rules.py``), which share
no code with the projection. ``tests/models/test_trees_on_the_wire.py`` judges the adapters'
requests for the same trees.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given

from anabranch import Message
from anabranch.messages import NOTHING, ImageBlock, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.tree import NO_RESULT_CONTENT, Kind, Node, Result, project
from tests.laws.trees import Thicket, thickets
from tests.models.provider_rules import chat_faults, messages_faults
from tests.randomised import examples

many = examples(60, gate=30)


def as_messages_body(messages: Sequence[Message]) -> dict[str, Any]:
    """Return a request body for Anthropic; the library's blocks use Anthropic's names and fields."""
    return {"max_tokens": 1, "messages": [each.model_dump(mode="json") for each in messages]}


def as_chat_body(messages: Sequence[Message]) -> dict[str, Any]:
    """Return a chat request by the plainest translation: an invalid input gives an invalid output."""
    return {"messages": [sent for each in messages for sent in _as_chat(each)]}


def _as_chat(message: Message) -> Iterator[dict[str, Any]]:
    text = [{"type": "text", "text": b.text} for b in message.content if isinstance(b, TextBlock)]
    if message.role == "assistant":
        made = [
            {
                "id": block.id,
                "type": "function",
                "function": {"name": block.name, "arguments": json.dumps(block.input)},
            }
            for block in message.content
            if isinstance(block, ToolUseBlock)
        ]
        yield {"role": "assistant", "content": text or None} | (
            {"tool_calls": made} if made else {}
        )
        return
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            content = [part.model_dump(mode="json") for part in block.content]
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
    if text:
        yield {"role": "user", "content": text}


def paths(thicket: Thicket) -> Iterator[tuple[Node, ...]]:
    return (thicket.path(node) for node in thicket.nodes)


def node(
    number: int,
    kind: Kind,
    *content: TextBlock | ToolUseBlock | ImageBlock,
    parent: int | None = None,
) -> Node:
    before = f"n{parent if parent is not None else number - 1}" if number else None
    return Node(f"n{number}", "t", before, kind, content, 0.0)


def text(said: str) -> TextBlock:
    return TextBlock(text=said)


def use(use_id: str = "u1", name: str = "look") -> ToolUseBlock:
    return ToolUseBlock(id=use_id, name=name, input={})


def result(holder: int, said: str, use_id: str = "u1") -> Result:
    return Result(f"n{holder}", use_id, (text(said),))


def thicket(*nodes: Node, results: Sequence[Result] = ()) -> Thicket:
    return Thicket(nodes, {(each.node_id, each.tool_use_id): each for each in results})


HARD = [
    thicket(node(0, "assistant", text("first"))),
    thicket(node(0, "user"), node(1, "assistant", text("a \n"))),
    thicket(node(0, "user", use())),
    thicket(node(0, "user"), node(1, "assistant", use(), use()), node(2, "assistant", use())),
    thicket(
        node(0, "user"), node(1, "assistant", use("u1")), node(2, "assistant", use("u1_2"), use())
    ),
    thicket(node(0, "user"), node(1, "assistant", use("a.b")), node(2, "assistant", use("a/b"))),
    thicket(
        node(0, "user"), node(1, "assistant", use("x" * 64)), node(2, "assistant", use("x" * 64))
    ),
    thicket(
        node(0, "user"),
        node(1, "assistant", use()),
        node(2, "question", text("sure?")),
        node(3, "answer", text("yes")),
        node(4, "assistant", text("done")),
        results=[result(1, "old"), result(3, "again"), result(2, "")],
    ),
]


@pytest.mark.parametrize("hard", HARD)
def test_hard_paths_are_valid_requests(hard: Thicket) -> None:
    """The stored trees, each of which once revealed a fault."""
    for path in paths(hard):
        messages = project(path, hard.results)
        assert messages_faults(as_messages_body(messages)) == []
        assert chat_faults(as_chat_body(messages)) == []


@many
@given(thickets())
def test_every_path_is_a_valid_request_for_both_providers(grown: Thicket) -> None:
    """Law 6 for any tree."""
    for path in paths(grown):
        messages = project(path, grown.results)
        assert messages_faults(as_messages_body(messages)) == []
        assert chat_faults(as_chat_body(messages)) == []


@many
@given(thickets(pictures=True))
def test_only_user_messages_have_images_and_audio(grown: Thicket) -> None:
    """Law 6: neither provider accepts images or audio from the assistant."""
    for path in paths(grown):
        for message in project(path, grown.results):
            kinds = {block.type for block in message.content}
            assert kinds <= ({"text", "tool_use"} if message.role == "assistant" else kinds)
            assert message.content


@many
@given(thickets())
@example(HARD[1])
def test_a_longer_path_starts_with_the_messages_of_the_shorter_one(grown: Thicket) -> None:
    """Providers' prompt caches need this: all messages stay, except the one that continues."""
    for path in paths(grown):
        longer = project(path, grown.results)
        shorter = project(path[:-1], grown.results)
        assert longer[: max(0, len(shorter) - 1)] == shorter[:-1]
        assert len(longer) >= len(shorter)


@many
@given(thickets())
def test_a_projection_depends_only_on_the_path_and_its_results(grown: Thicket) -> None:
    """A repeated projection is equal, and other nodes of the tree do not change it."""
    for path in paths(grown):
        once = project(iter(path), grown.results)
        ids = {each.id for each in path}
        along = {key: value for key, value in grown.results.items() if key[0] in ids}
        assert project(path, along) == once == project(path, grown.results)


@many
@given(thickets())
def test_a_projection_keeps_all_texts_and_tool_uses_in_order(grown: Thicket) -> None:
    """A projection may add what a provider requires. It loses no text and no tool use."""
    for path in paths(grown):
        sent = [
            block
            for message in project(path, grown.results)
            for block in message.content
            if not isinstance(block, ToolResultBlock) and block != text(NOTHING)
        ]
        said = [
            block
            for each in path
            if each.kind not in {"question", "answer"}
            for block in each.content
            if (isinstance(block, TextBlock) and block.text.strip())
            or (isinstance(block, ToolUseBlock) and each.kind == "assistant")
        ]
        assert [_words(block) for block in sent] == [_words(block) for block in said]


def _words(block: object) -> object:
    if isinstance(block, TextBlock):
        return block.text.rstrip()  # the last text may have lost the space at its end
    assert isinstance(block, ToolUseBlock)
    return block.input


@many
@given(thickets())
@example(HARD[-1])
def test_the_nearest_result_follows_a_tool_use_before_any_text(grown: Thicket) -> None:
    """After an answer, a tool may have run again: the last node with a result for the call counts."""
    for path in paths(grown):
        expected = [
            _expected(path, place, block.id, grown)
            for place, each in enumerate(path)
            if each.kind == "assistant"
            for block in each.content
            if isinstance(block, ToolUseBlock)
        ]
        sent = [
            (block.is_error, list(block.content))
            for message in project(path, grown.results)
            for block in message.content
            if isinstance(block, ToolResultBlock)
        ]
        assert sent == expected


def _expected(path: Sequence[Node], place: int, use_id: str, grown: Thicket) -> tuple[bool, Any]:
    holders = [path[place].id]
    for each in path[place + 1 :]:
        if each.kind not in {"question", "answer"}:
            break
        holders.append(each.id)
    held = [grown.results[key] for each in holders if (key := (each, use_id)) in grown.results]
    if not held:
        return True, list(NO_RESULT_CONTENT)
    said = [p for p in held[-1].content if not isinstance(p, TextBlock) or p.text.strip()]
    return held[-1].is_error, said or [text(NOTHING)]
