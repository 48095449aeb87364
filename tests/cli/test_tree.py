"""``anabranch tree``: the real command, and its arguments."""

import asyncio
import re
from pathlib import Path

import pytest

from anabranch.cli._options import STORE, store_url
from anabranch.messages import TextBlock
from anabranch.stores import open_tree_store
from anabranch.tree import HEAD, Node, Ref, Thread
from tests.cli.running import Run
from tests.cli.terminals import terminal
from tests.tree.samples import SAMPLE, fill


async def make(url: str) -> None:
    store = open_tree_store(url)
    await fill(store)
    odd = Thread("odd", 50.0, title="\ud800 \x1b[31mred")
    await store.create_thread(odd)
    said = TextBlock(text="\x1b]0;title\x07 \ud800 Zoë")
    await store.append([Node("odd node", "odd", None, "user", (said,), 51.0)])
    await store.close()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a store with two threads; the environment names the store."""
    url = f"sqlite:///{tmp_path}/threads.db"
    asyncio.run(make(url))
    monkeypatch.setenv(STORE, url)
    return url


def test_list_names_the_newest_first(run: Run, store: str) -> None:
    assert run.value("tree", "list", "--limit", "1") == [
        {"thread": "trip", "title": "A trip", "created_at": 100.0}
    ]
    assert [one["thread"] for one in run.value("tree", "list")] == ["trip", "odd"]


def test_show_draws_the_thread(run: Run, store: str) -> None:
    status, out, _ = run("tree", "show", "trip")

    assert status == 0
    assert out.startswith("trip  A trip\nuser       start  Where to?\n")
    assert "\n  b1  branch     b-graz  Look at Graz.\n" in out
    assert out.endswith("assistant  end  To Graz, then.  (head)  ← you are here\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "odd"],
        ["export", "odd", "--format", "mermaid"],
        ["export", "odd", "--format=markdown"],
    ],
)
def test_nothing_in_a_thread_moves_the_cursor_or_stops_the_output(
    run: Run, store: str, arguments: list[str]
) -> None:
    status, out, _ = run("tree", *arguments)

    assert status == 0
    assert "Zoë" in out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", out)


def test_json_keeps_messages_to_the_letter(run: Run, store: str) -> None:
    (exported,) = run.value("tree", "export", "odd")["nodes"]

    assert exported["content"] == [{"type": "text", "text": "\x1b]0;title\x07 \ud800 Zoë"}]


def test_export_has_three_forms(run: Run, store: str) -> None:
    assert run.value("tree", "export", "trip", "--format", "json")["refs"] == SAMPLE.refs
    assert run("tree", "export", "trip", "--format", "mermaid")[1].startswith("graph TD\n")
    assert run("tree", "export", "trip", "--format", "markdown")[1].startswith("# A trip\n")


def test_messages_equal_the_request_to_a_provider(run: Run, store: str) -> None:
    messages = run.value("tree", "messages", "graz")

    assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[2]["content"][0]["tool_use_id"] == "use"


def test_a_label_is_set_moved_and_removed(run: Run, store: str) -> None:
    assert run.value("tree", "label", "trip", "b2", "best") == {**SAMPLE.refs, "best": "linz"}
    assert run.value("tree", "label", "trip", "best", "good") == {
        "best": "linz",
        "good": "linz",
        "head": "end",
    }
    assert run.value("tree", "unlabel", "trip", "good") == {"best": "linz", "head": "end"}


def test_prune_deletes_a_branch_from_where_it_opens(run: Run, store: str) -> None:
    assert run.value("tree", "prune", "trip", "b2", "--yes") == {"deleted": 3}

    left = run.value("tree", "export", "trip")
    assert {one["id"] for one in left["nodes"]}.isdisjoint({"b-linz", "linz", "b-port"})
    assert left["refs"] == SAMPLE.refs


def test_prune_moves_a_head_that_it_deletes(run: Run, store: str) -> None:
    assert run.value("tree", "prune", "trip", "both", "--yes") == {"deleted": 2}

    assert run.value("tree", "export", "trip")["refs"] == {"good": "graz", "head": "fork"}


def test_prune_of_the_only_beginning_leaves_an_empty_thread(run: Run, store: str) -> None:
    assert run.value("tree", "prune", "odd", "odd node", "--yes") == {"deleted": 1}

    assert run.value("tree", "export", "odd") == {"thread": "odd", "refs": {}, "nodes": []}


def test_prune_deletes_a_thread(run: Run, store: str) -> None:
    assert run.value("tree", "prune", "trip", "--yes") == {"deleted": 10}

    assert [one["thread"] for one in run.value("tree", "list")] == ["odd"]


@pytest.mark.parametrize("arguments", [["trip"], ["trip", "fork"], ["last"]])
def test_without_a_terminal_and_without_yes_nothing_is_pruned(
    run: Run, store: str, arguments: list[str]
) -> None:
    status, out, err = run("tree", "prune", *arguments)
    assert (status, out) == (2, "")
    assert "There is no terminal to ask at: give --yes to delete it." in err
    assert "the branches b1, b2, b2.1" in err
    assert len(run.value("tree", "export", "trip")["nodes"]) == 10


def test_prune_names_the_nodes_to_delete_and_asks(run: Run, store: str) -> None:
    for key, outcome in (("n", 1), ("y", 0)):
        with terminal("tree", "prune", "trip", "b2", "--store", store, status=outcome) as user:
            user.wait_for("from trip (A trip): 3 nodes; the branches b2, b2.1.")
            user.wait_for("Delete it?")
            user.type(f"{key}\r")
        left = len(run.value("tree", "export", "trip")["nodes"])
        assert left == (10 if outcome else 7)


def test_a_terminal_shows_a_table_with_short_ids_that_commands_accept(run: Run, store: str) -> None:
    long = ["thread_abcde1234567", "thread_abcdf1234567"]

    async def add() -> None:
        trees = open_tree_store(store)
        for day, name in enumerate(long):
            await trees.create_thread(Thread(name, 86_400.0 * (365 + day), title=f"Day {day}"))
        await trees.append(
            [Node("node_xyzuv1234567", long[0], None, "user", (TextBlock(text="Hi"),), 0.0)]
        )
        await trees.close()

    asyncio.run(add())
    with terminal("tree", "list", "--store", store, whole=True, environment={"TZ": "UTC"}) as user:
        user.wait_for("abcdf  1971-01-02 00:00  Day 1")
        user.wait_for("abcde  1971-01-01 00:00  Day 0")
    assert "user       xyzuv  Hi\n" in run("tree", "show", "abcde")[1]
    assert run.value("tree", "messages", "xyzuv") == run.value(
        "tree", "messages", "node_xyzuv1234567"
    )
    assert run("tree", "show", "last")[1].startswith("thread_abcdf1234567  Day 1")
    assert run.value("tree", "label", "abcde", "xyzuv", "best") == {"best": "node_xyzuv1234567"}
    assert run.value("tree", "unlabel", "abcde", "best") == {}


def test_last_names_the_last_node_of_the_latest_thread(store: str, run: Run) -> None:
    async def leave() -> None:
        trees = open_tree_store(store)
        await trees.create_thread(Thread("new", 1e9))
        texts = {"left": "Hi", "beside": "Ho"}
        for name, text in texts.items():
            await trees.append([Node(name, "new", None, "user", (TextBlock(text=text),), 1e9)])
        await trees.set_ref("new", Ref(HEAD, "left"))
        await trees.close()

    asyncio.run(leave())
    [message] = run.value("tree", "messages", "last")
    assert message["content"] == [{"type": "text", "text": "Hi"}]
    assert run("tree", "messages", "last", "--store", "memory:")[0] == 1


def test_a_short_id_of_several_threads_is_answered_with_candidates(run: Run, store: str) -> None:
    async def add() -> None:
        trees = open_tree_store(store)
        for name in ("thread_abcdef1", "thread_abcdef2"):
            await trees.create_thread(Thread(name, 0.0))
        await trees.close()

    asyncio.run(add())
    for command in (["tree", "show", "abcdef"], ["browse", "abcdef"]):
        status, _, err = run(*command, "--store", store)
        assert status == 1
        assert "several ids: thread_abcdef2, thread_abcdef1. Give more" in err


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        (["show", "nowhere"], 1, "The store has no thread 'nowhere'."),
        (["export", "nowhere"], 1, "no thread 'nowhere'"),
        (["messages", "nowhere"], 1, "The store has no node 'nowhere'."),
        (["label", "trip", "b9", "x"], 1, "The thread 'trip' has no node 'b9'. Give an id"),
        (["label", "trip", "end", "head"], 2, "'head' cannot be a label"),
        (["label", "trip", "end", " "], 2, "cannot be a label"),
        (["label", "trip", "end", "b2"], 1, "'b2' is already an id or a branch name in the thread"),
        (["label", "trip", "end", "b9"], 1, "'b9' is already an id or a branch name in the thread"),
        (["label", "trip", "end", "graz"], 1, "'graz' is already an id or a branch name"),
        (["unlabel", "trip", "best"], 1, "The thread 'trip' has no label 'best'."),
        (["prune", "nowhere"], 1, "no thread 'nowhere'"),
        (["prune", "trip", "b9"], 1, "no node 'b9'"),
        (["prune", "trip", ""], 1, "no node ''"),
        (["list", "--store", "cards"], 2, "The store URL is invalid"),
        (["list", "--store", "sqlite:////dev/null/x.db"], 2, "There is no file /dev/null/x.db"),
        (["list", "--store", "sqlite:////dev"], 1, "cannot be opened"),
        (["export", "trip", "--format", "pdf"], 2, "pdf"),
    ],
)
def test_an_error_is_reported_in_one_line(
    run: Run, store: str, arguments: list[str], status: int, problem: str
) -> None:
    ended, out, err = run("tree", *arguments)

    assert (ended, out) == (status, "")
    assert problem in err
    assert err.count("\n") == 1


def test_a_file_that_is_no_store_is_reported_and_not_changed(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary, " * 100)

    status, _, err = run("tree", "list", "--store", f"sqlite:///{file}")

    assert (status, "is not a SQLite database" in err) == (1, True)
    assert file.read_text() == "Dear diary, " * 100


def test_the_default_is_a_file_in_the_data_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))

    assert store_url(None).startswith(f"sqlite:///{tmp_path}/")
    assert store_url("") == store_url(None)
    assert store_url("memory:") == "memory:"
