"""Conversations in files: saved, loaded, loaded twice, and refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.chat import Session
from anabranch.messages import ElicitReply, text_of
from anabranch.tree import Tree, project, thread_from_json, thread_to_json
from tests.chat.sessions import User, feed, numbered, session, shown, text_here, tree_of


async def rich() -> Session:
    """Return a conversation with branches, a label, a question answered twice, and a direct call."""
    chat = session(user=User(ElicitReply(action="accept", content={"ok": True})))
    await feed(chat, "fork one two", "/fork b1", "/label best", "deeper", "/add a=1")
    await feed(chat, "/root", "book Ulm", "/answer decline")
    return chat


def shape(tree: Tree) -> object:
    """Return all content of a conversation except names and times."""
    at = {node.id: number for number, node in enumerate(tree.nodes)}
    nodes = [
        (at.get(str(node.parent_id)), node.kind, node.content, node.usage) for node in tree.nodes
    ]
    results = sorted(
        (at[result.node_id], result.tool_use_id, str(result.content), result.is_error)
        for result in tree.results.values()
    )
    return nodes, results, {name: at[node_id] for name, node_id in tree.refs.items()}


async def test_a_saved_conversation_is_loaded_as_a_new_one_with_all_of_it(tmp_path: Path) -> None:
    chat = await rich()
    before, place = await tree_of(chat), await text_here(chat)
    file = tmp_path / "a saved one.json"
    assert (await shown(chat, f"/save {file}")).startswith("Saved in ")
    await feed(chat, f"/load {file}")
    after = await tree_of(chat)
    assert after.thread.id != before.thread.id
    assert after.thread.title == before.thread.title
    assert shape(after) == shape(before)
    assert await text_here(chat) == place
    await feed(chat, f"/load {file}")
    assert shape(await tree_of(chat)) == shape(before)


async def test_a_question_in_a_loaded_conversation_is_not_answered_again(tmp_path: Path) -> None:
    chat = await rich()
    await feed(chat, f"/save {tmp_path / 'c.json'}", f"/load {tmp_path / 'c.json'}")
    assert "is closed" in await shown(chat, "/answer cancel")
    assert await shown(chat, "go on") == "You said: go on"


async def test_an_export_without_anabranch_fields_is_loaded_from_its_messages() -> None:
    chat = await rich()
    tree = await tree_of(chat)
    exported = thread_to_json(tree)
    del exported["results"]
    paths = {node.id: await chat.store.path(node.id) for node in tree.nodes}
    for node in exported["nodes"]:
        del node["data"]
        if node["kind"] in {"results", "branch"}:
            path = paths[node["id"]]
            last = project(path.nodes, path.results)[-1]
            returned = [block for block in last.content if block.type == "tool_result"]
            node["content"] = [b.model_dump(mode="json") for b in returned] + node["content"]
    loaded = thread_from_json(json.dumps(exported).encode(), numbered(), 1.0)
    at = {node.id: number for number, node in enumerate(loaded.nodes)}
    results = {(at[each.node_id], text_of(each.content)) for each in loaded.results}
    old = {node.id: number for number, node in enumerate(tree.nodes)}
    wanted = {(old[each.node_id], text_of(each.content)) for each in tree.results.values()}
    booked = {text for _, text in wanted if text.startswith("Ulm")}
    assert booked == {"Ulm: accept", "Ulm: decline"}
    loaded_results = {text for _, text in results if "is not continued" not in text}
    assert loaded_results == {text for _, text in wanted}
    assert [node.content for node in loaded.nodes] == [node.content for node in tree.nodes]


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def one(**changes: Any) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": "a",
        "parent_id": None,
        "kind": "user",
        "content": [],
        "created_at": 1.0,
    }
    return {"thread": "t", "refs": {}, "nodes": [node], **changes}


NODE = one()["nodes"][0]


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ([], "Input should be an object"),
        ({}, "thread: Field required"),
        (one(nodes=[{**NODE, "kind": "tree"}]), "nodes.0.kind: Input should be 'user'"),
        (one(nodes=[{**NODE, "content": [{"type": "x"}]}]), "nodes.0.content.0"),
        (one(nodes=[NODE, NODE]), "node 'a' occurs twice"),
        (one(nodes=[{**NODE, "parent_id": "b"}]), "node 'a' points at 'b', which the file lacks"),
        (
            one(nodes=[{**NODE, "parent_id": "b"}, {**NODE, "id": "b"}]),
            "node 'a' comes before its parent 'b'",
        ),
        (one(nodes=[{**NODE, "kind": "assistant"}]), "a thread begins with a user's message"),
        (one(refs={"x": "y"}), "ref 'x' points at 'y', which the file lacks"),
        (
            one(results=[{"node_id": "z", "tool_use_id": "u", "content": []}]),
            "a result points at 'z', which the file lacks",
        ),
        (
            one(nodes=[{**NODE, "content": [{"type": "tool_result", "tool_use_id": "u"}]}]),
            "node 'a' has a result of 'u', which no node has called",
        ),
    ],
)
async def test_a_file_without_a_conversation_is_refused_completely(
    tmp_path: Path, saved: object, said: str
) -> None:
    file = tmp_path / "file.json"
    file.write_text(json.dumps(saved))
    chat = session()
    answer = await shown(chat, f"/load {file}")
    assert answer.startswith(f"error: {file} holds no conversation: ")
    assert said in answer
    assert await chat.store.threads(10) == []


async def test_a_file_that_is_missing_or_not_json_is_reported(tmp_path: Path) -> None:
    chat = session()
    assert "Cannot read" in await shown(chat, f"/load {tmp_path / 'none'}")
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    assert "holds no conversation" in await shown(chat, f"/load {tmp_path / 'binary'}")


async def test_saving_replaces_a_saved_conversation_and_nothing_else(tmp_path: Path) -> None:
    chat = session()
    file = tmp_path / "file.json"
    await feed(chat, "one", f"/save {file}", "two", f"/save {file}")
    assert len(json.loads(file.read_text())["nodes"]) == 4
    file.write_text("precious")
    assert "is no saved conversation" in await shown(chat, f"/save {file}")
    assert file.read_text() == "precious"
    assert "Cannot write" in await shown(chat, f"/save {tmp_path / 'none' / 'file'}")
    assert names_in(tmp_path) == ["file.json"]
