"""The screen of a chat whose store cannot list branches, or whose model stops early."""

import io
from collections.abc import Sequence

import pytest

from anabranch._terminal import Console
from anabranch.agents import Agent, BranchSelf
from anabranch.chat import Session, enter
from anabranch.chat._terminal.chat_screen import ChatScreen
from anabranch.chat._terminal.replies import Replies
from anabranch.errors import StoreError
from anabranch.messages import SampleReply, TextBlock
from anabranch.testing import MockModel, calls
from anabranch.tree import Node
from tests.agents.memory import MemoryTrees
from tests.chat.sessions import User, book, echo


class Unreadable(MemoryTrees):
    """A store that accepts writes, and cannot read the nodes of a thread."""

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        raise StoreError("The store is locked.")


async def test_a_branch_without_a_name_is_shown_with_its_answer() -> None:
    shown, store = io.StringIO(), Unreadable()
    screen = ChatScreen(Console(shown), Replies(io.StringIO()))
    agent = Agent(store, MockModel(echo), tools=[BranchSelf()], listener=screen.on_event)
    chat = Session(agent, thread_id="t")
    screen.attach(chat)
    [output] = await enter(chat, "fork one two")
    assert (output.type, output.content) == ("message", "Done.")
    assert "[other branch] You said: (self-prompt): one" in shown.getvalue()
    answers = [node.data for node in (await store.tree("t")).nodes if node.kind == "assistant"]
    assert len(answers) == 4
    assert not any("error" in data for data in answers)


@pytest.mark.parametrize(
    ("text", "reason", "note"),
    [
        (
            "The first",
            "maxTokens",
            "(cut off at the limit of tokens; “continue” asks for the rest)",
        ),
        ("I", "content_filter", "(ended by the provider's content filter)"),
        ("", "endTurn", "(the model wrote no text)"),
        ("All.", "endTurn", ""),
    ],
)
async def test_a_chat_notes_an_incomplete_or_blank_reply(text: str, reason: str, note: str) -> None:
    said, replies = io.StringIO(), io.StringIO()
    screen = ChatScreen(Console(said), Replies(replies))
    reply = SampleReply(content=(TextBlock(text=text),), model="m", stop_reason=reason)
    agent = Agent(MemoryTrees(), MockModel(lambda _: reply), listener=screen.on_event)
    chat = Session(agent, thread_id="t")
    screen.attach(chat)
    screen.show(await enter(chat, "Count."))
    assert said.getvalue().strip() == note
    assert replies.getvalue().strip() == text


async def test_arguments_are_shown_in_the_letters_of_their_language() -> None:
    said = io.StringIO()
    screen = ChatScreen(Console(said), Replies(io.StringIO()))
    use = calls(("u", "book", {"place": "Zürich 你好\x1b[2J"}))
    model = MockModel(lambda request: use if len(request.messages) == 1 else "Done.")
    agent = Agent(MemoryTrees(), model, tools=[book], user=User(), listener=screen.on_event)
    chat = Session(agent, thread_id="t")
    screen.attach(chat)
    await enter(chat, "Book.")
    shown = '→ book({"place": "Zürich 你好\\u001b[2J"})'
    assert shown in said.getvalue()
    await enter(chat, "/up")
    assert shown in [output.content for output in await enter(chat, "/up")][-1]
