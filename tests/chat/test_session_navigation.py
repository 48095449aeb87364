"""Moving through a conversation: every direction, and directions that do not exist."""

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.chat import Session
from anabranch.errors import StoreError
from anabranch.tree import Node, Ref
from tests.agents.memory import MemoryTrees
from tests.chat.sessions import beside, feed, session, shown, text_here, tree_of


async def forked() -> Session:
    """Return a session after a turn, a fork into three branches, and another turn, where the cursor is."""
    chat = session()
    await feed(chat, "hello", "fork one two three")
    return chat


async def at(chat: Session, *lines: str) -> str:
    outputs = await feed(chat, *lines)
    assert [output.type for output in outputs if output.type == "error"] == []
    return await text_here(chat)


async def test_up_and_down_step_from_answer_to_answer() -> None:
    chat = session()
    await feed(chat, "first", "second", "third")
    assert await at(chat, "/up") == "You said: second"
    assert await at(chat, "/up") == "You said: first"
    assert await at(chat, "/down") == "You said: second"


async def test_up_from_the_first_answer_leads_before_everything_and_down_back() -> None:
    chat = session()
    await feed(chat, "first", "/up")
    assert chat.cursor.node_id is None
    assert await shown(chat, "/up") == "error: This is the beginning."
    assert await at(chat, "/down") == "You said: first"


async def test_a_message_before_everything_is_a_new_beginning_in_the_same_thread() -> None:
    chat = session()
    await feed(chat, "first", "/up", "other")
    assert await at(chat, "/left") == "You said: first"
    assert await at(chat, "/right") == "You said: other"
    assert await at(chat, "/root") == "You said: other"


async def test_down_lists_the_ways_where_there_are_several_and_goes_the_one_that_is_named() -> None:
    chat = await forked()
    assert await at(chat, "/up") == "Forking."
    listed = await shown(chat, "/down")
    assert "1. [b1] You said: (self-prompt): one" in listed
    assert "4. Done." in listed
    assert await text_here(chat) == "Forking."
    assert await at(chat, "/down 2") == "You said: (self-prompt): two"


@pytest.mark.parametrize("number", ["0", "5", "x", "-1", "²", "1" * 5000])
async def test_down_refuses_a_way_that_is_not_there(number: str) -> None:
    chat = await forked()
    assert "is not a number from 1 to 4." in await shown(chat, "/up", f"/down {number}")


async def test_down_at_the_end_says_so() -> None:
    assert "error: This is where the conversation ends." in await shown(await forked(), "/down")


async def test_left_and_right_go_round_all_branches_those_of_branch_self_included() -> None:
    chat = await forked()
    seen = [await at(chat, "/right") for _ in range(4)]
    assert seen == [
        "You said: (self-prompt): one",
        "You said: (self-prompt): two",
        "You said: (self-prompt): three",
        "Done.",
    ]
    assert [await at(chat, "/left") for _ in range(2)] == [
        "You said: (self-prompt): three",
        "You said: (self-prompt): two",
    ]


async def test_siblings_are_reachable_from_deep_inside_of_a_branch() -> None:
    chat = await forked()
    await feed(chat, "/fork b2", "more", "and more")
    assert await at(chat, "/right") == "You said: (self-prompt): three"


async def test_left_and_right_report_missing_branches() -> None:
    assert "No message above has another branch" in await shown(session(), "hello", "/left")


async def test_root_goes_to_an_answer_from_which_the_thread_continues() -> None:
    chat = await forked()
    assert await at(chat, "/root") == "You said: hello"
    assert await at(chat, "again") == "You said: again"


async def test_root_from_before_the_first_message_is_the_first_answer() -> None:
    chat = session()
    assert await at(chat, "first", "second", "/root", "/up", "/root") == "You said: first"


async def test_lastfork_and_nextfork_find_the_nearest_fork() -> None:
    chat = await forked()
    await feed(chat, "/fork b1", "fork four five", "later")
    assert await at(chat, "/lastfork") == "Forking."
    assert chat.cursor.node_id is not None
    inner = chat.cursor.node_id
    assert await at(chat, "/lastfork") == "Forking."
    assert chat.cursor.node_id != inner
    await feed(chat, "/root", "/nextfork", "/nextfork")
    assert chat.cursor.node_id == inner


async def test_a_missing_fork_above_or_below_is_reported() -> None:
    chat = session()
    assert "No message above has several branches." in await shown(chat, "a", "/lastfork")
    assert "No fork lies below." in await shown(chat, "/nextfork")


async def test_leaf_lists_the_ends_below_and_goes_to_one() -> None:
    chat = await forked()
    listed = await shown(chat, "/root", "/leaf")
    assert "1. [depth 6, b1] You said: (self-prompt): one" in listed
    assert "4. [depth 6] Done." in listed
    assert await at(chat, "/leaf 3") == "You said: (self-prompt): three"
    assert "is not a number from 1 to 1." in await shown(chat, "/leaf 2")


async def test_a_long_leaf_is_cut_in_the_middle() -> None:
    chat = session()
    listed = await shown(chat, "a" * 400 + "z" * 400, "/leaf")
    line = listed.splitlines()[0].partition("] ")[2]
    assert len(line) == 300
    assert line.startswith("You said: aaa")
    assert "…" in line
    assert line.endswith("zzz")


async def test_label_names_a_place_leads_back_to_it_and_lists() -> None:
    chat = session()
    await feed(chat, "first", "/label start", "second")
    assert await at(chat, "/label start") == "You said: first"
    assert "start: You said: first" in await shown(chat, "/label")
    assert await shown(chat, "/unlabel start") == "Removed the label 'start'."
    assert "There are no labels" in await shown(chat, "/label")
    assert "error: Unknown label 'start'." in await shown(chat, "/unlabel start")


@pytest.mark.parametrize("name", ["head", "b1", "b9.1", "n1"])
async def test_a_label_cannot_have_the_name_of_something_else(name: str) -> None:
    chat = await forked()
    assert "is taken here" in await shown(chat, f"/label {name}")


async def test_nothing_can_be_labelled_before_the_first_message() -> None:
    chat = session()
    assert "error: This conversation has no messages yet." in await shown(chat, "/label x")
    assert "A label needs a node" in await shown(chat, "a", "/up", "/label x")


async def test_unlabel_never_takes_the_head_away() -> None:
    chat = session()
    assert "error: Unknown label 'head'." in await shown(chat, "a", "/unlabel head")
    assert await chat.agent.head(chat.cursor.thread_id) == chat.cursor.node_id


async def test_fork_goes_to_a_node_by_id_label_or_branch_name() -> None:
    chat = await forked()
    await feed(chat, "/label end")
    node = chat.cursor.node_id
    assert await at(chat, "/fork b3") == "You said: (self-prompt): three"
    await feed(chat, "deeper")
    assert await at(chat, "/root", "/fork b3") == "You said: deeper"
    assert await at(chat, "/fork end") == "Done."
    assert await at(chat, "/root", f"/fork {node}") == "Done."
    assert "This thread has no node, label or branch 'b9'" in await shown(chat, "/fork b9")


async def test_a_conversation_continues_from_the_middle_of_another() -> None:
    chat = session()
    await feed(chat, "first", "second")
    said = (await chat.cursor.walk()).path(chat.cursor.node_id)[2]
    assert said.text == "second"
    await feed(chat, f"/fork {said.id}", "/auto")
    assert len((await chat.cursor.walk()).children(said.id)) == 2
    assert await at(chat, f"/fork {said.id}", "/right") == "You said: second"


async def test_undo_reverses_messages_and_moves_and_deletes_nothing() -> None:
    chat = session()
    await feed(chat, "first", "second", "/root")
    assert await at(chat, "/undo") == "You said: second"
    assert await at(chat, "/undo") == "You said: first"
    assert await at(chat, "other") == "You said: other"
    assert await at(chat, "/undo") == "You said: first"
    assert len((await chat.cursor.walk()).below(chat.cursor.node_id)) == 2
    await feed(chat, "/undo")
    assert chat.cursor.node_id is None


async def test_undo_without_anything_to_undo_says_so() -> None:
    chat = session()
    await chat.start()
    assert "error: There is nothing to undo." in await shown(chat, "/undo")


async def test_the_start_of_a_session_cannot_be_undone() -> None:
    chat = await forked()
    again = beside(chat)
    await again.start()
    assert "error: There is nothing to undo." in await shown(again, "/undo")
    assert again.cursor.node_id == chat.cursor.node_id


async def test_undo_leads_back_to_the_thread_before() -> None:
    chat = session()
    await chat.start()
    await feed(chat, "first")
    before = chat.cursor.thread_id
    await feed(chat, "/thread", "elsewhere", "/undo", "/undo")
    assert (chat.cursor.thread_id, await text_here(chat)) == (before, "You said: first")


@pytest.mark.parametrize(
    "line",
    [
        "/up",
        "/down",
        "/left",
        "/right",
        "/root",
        "/lastfork",
        "/nextfork",
        "/leaf",
        "/fork·x",
        "/tree",
        "/auto",
        "/answer",
        "/broadcast·x",
        "/combine_leaves",
    ],
)
async def test_an_empty_thread_refuses_every_move(line: str) -> None:
    line = line.replace("·", " ")
    assert await shown(session(), line) == "error: This conversation has no messages yet."


async def test_additions_and_deletions_of_another_session_are_seen_at_the_next_step() -> None:
    chat = await forked()
    other = beside(chat)
    await other.start()
    await feed(chat, "/root")
    await feed(other, "/root", "beside", "/label theirs")
    assert "2. [b4] You said: beside" in await shown(chat, "/down")
    assert "theirs: [b4] You said: beside" in await shown(chat, "/label")
    await chat.store.delete_subtree((await tree_of(chat)).nodes[-2].id)
    assert "beside" not in await shown(chat, "/down")
    assert "There are no labels." in await shown(chat, "/label")


async def test_two_simultaneous_reads_of_a_thread_keep_each_node_once() -> None:
    """A command and a front end read at the same time."""

    class Yielding(MemoryTrees):
        async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
            found = await super().nodes_after(thread_id, known)
            await asyncio.sleep(0)
            return found

    chat = session(store=Yielding())
    await feed(chat, "hello", "/tree")
    await chat.agent.put(
        chat.cursor.thread_id, [(chat.cursor.node_id, "a"), (chat.cursor.node_id, "b")], head=False
    )
    walks = await asyncio.gather(chat.cursor.walk(), chat.cursor.walk())
    for walk in walks:
        assert walk.tree.nodes == (await tree_of(chat)).nodes
        assert list(walk.branches.values()) == ["", "", "", "b1"]


async def test_the_head_follows_the_cursor_so_that_the_next_session_begins_there() -> None:
    chat = await forked()
    await feed(chat, "/fork b2")
    again = beside(chat)
    await again.start()
    assert again.cursor.node_id == chat.cursor.node_id
    await feed(chat, "/root", "/up")
    again = beside(chat)
    assert "before the first message" in (await again.start())[1].content
    assert again.cursor.node_id is None


async def test_a_place_shows_its_branch_siblings_labels_and_the_nodes_below() -> None:
    chat = await forked()
    outputs = await feed(chat, "/fork b2", "/label here", "/up", "/down 2")
    assert outputs[0].content == "b2 · assistant · label here · 2 of 4 (/left, /right)"
    outputs = await feed(chat, "/up")
    assert outputs[0].content == "assistant · 4 below (/down)"
    assert outputs[1].content.startswith('Forking.\n→ branch_self({"prompts": ["one",')


# -- deletions by another session -----------------------------------------------------------

ANYWHERE = ["/up", "/down", "/left", "/leaf", "/fork b1", "/tree", "/broadcast x", "/auto"]


@pytest.mark.parametrize("line", [*ANYWHERE, "hello", "/add a=1"])
async def test_the_cursor_moves_to_the_head_when_its_node_is_deleted(line: str) -> None:
    """The session does not run the line, which was meant for the deleted place."""
    chat = session()
    await feed(chat, "first", "second")
    last = (await tree_of(chat)).nodes[1]
    await chat.store.delete_subtree((await tree_of(chat)).nodes[2].id)
    await chat.store.set_ref(chat.cursor.thread_id, Ref("head", last.id))
    assert await shown(chat, line) == (
        "error: Another chat or command deleted your place in the conversation. You are now at the"
        " end of the conversation."
    )
    assert (chat.cursor.node_id, len((await tree_of(chat)).nodes)) == (last.id, 2)
    assert await shown(chat, "third") == "You said: third"


async def test_without_a_head_the_cursor_is_before_the_first_message() -> None:
    chat = session()
    await feed(chat, "first", "/up", "other")
    await chat.store.delete_subtree((await tree_of(chat)).nodes[2].id)
    assert "You are now before the first message." in await shown(chat, "/up")
    assert await at(chat, "/down") == "You said: first"


@pytest.mark.parametrize("line", [*ANYWHERE, "hello", "/add a=1"])
async def test_a_conversation_that_is_deleted_elsewhere_can_begin_again(line: str) -> None:
    chat = session()
    await feed(chat, "first")
    await chat.store.delete_thread(chat.cursor.thread_id)
    assert await shown(chat, line) == (
        "error: Someone deleted this conversation elsewhere. Your next message starts it again."
    )
    assert await shown(chat, "/tree") == "error: This conversation has no messages yet."
    assert await shown(chat, "again") == "You said: again"
    assert (await tree_of(chat)).thread.title == "again"


async def test_a_conversation_that_is_deleted_during_a_step_is_reported() -> None:
    class Vanishing(MemoryTrees):
        async def delete_ref(self, thread_id: str, name: str) -> bool:
            await self.delete_thread(thread_id)
            return False

    chat = session(store=Vanishing())
    assert "Someone deleted this conversation elsewhere." in await shown(chat, "first", "/up")
    assert await shown(chat, "again") == "You said: again"


@pytest.mark.parametrize("line", [*ANYWHERE, "/root", "/right", "/combine_leaves", "/answer"])
async def test_an_emptied_conversation_refuses_every_move(line: str) -> None:
    chat = session()
    await feed(chat, "first")
    await chat.store.delete_subtree((await tree_of(chat)).nodes[0].id)
    chat = beside(chat)
    assert "before the first message" in (await chat.start())[-1].content
    assert await shown(chat, line) == "error: This conversation has no messages yet."
    assert await shown(chat, "again") == "You said: again"


async def test_undo_skips_deleted_places() -> None:
    chat = session()
    await feed(chat, "first", "/up", "other", "/left")
    await chat.store.delete_subtree((await tree_of(chat)).nodes[2].id)
    assert "before the first message" in await shown(chat, "/undo")
    assert await at(chat, "/undo") == "You said: first"


async def test_an_undo_that_the_store_refuses_does_not_move_the_session() -> None:
    class Refusing(MemoryTrees):
        refuses = False

        async def set_ref(self, thread_id: str, ref: Ref) -> None:
            if self.refuses:
                raise StoreError("The store is locked.")
            await super().set_ref(thread_id, ref)

    store = Refusing()
    chat = session(store=store)
    await feed(chat, "first", "/thread", "elsewhere", "/undo")
    store.refuses = True
    assert await shown(chat, "/undo") == "error: The store is locked."
    assert (chat.cursor.thread_id, chat.cursor.node_id) == ("t2", None)
    store.refuses = False
    assert await at(chat, "/undo") == "You said: first"
