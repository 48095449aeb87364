"""What is seen of a chat whose store cannot be asked for the names of its branches."""

import io
from collections.abc import Sequence

from anabranch._terminal import Console
from anabranch.agents import Agent, BranchSelf
from anabranch.chat import Session, enter
from anabranch.chat._terminal.chat_screen import ChatScreen
from anabranch.chat._terminal.replies import Replies
from anabranch.errors import StoreError
from anabranch.testing import MockModel
from anabranch.tree import Node
from tests.agents.memory import MemoryTrees
from tests.chat.sessions import echo


class Unreadable(MemoryTrees):
    """A store that takes what it is given, and cannot be asked for a thread's nodes."""

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        raise StoreError("The store is locked.")


async def test_a_branch_that_has_no_name_is_shown_beside_and_has_answered_all_the_same() -> None:
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
