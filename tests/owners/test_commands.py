"""The command line next to an application with users: a chat sees no user's data, the operator's commands do."""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

from anabranch.cli import main
from anabranch.stores import open_tree_store
from tests.cli.command_tree import commands_with
from tests.owners.attack import Attack
from tests.owners.rows import rows_about, rows_of
from tests.owners.terminal import TerminalSurface
from tests.owners.users import User, ids_of
from tests.owners.web import MOUNTED, said
from tests.owners.web_story import TwoUsers

SERVE = {"serve", "web", "dev", "worker"}
"""Commands that serve users; the other tests of this folder cover them."""
OWN = {"chat"}
"""Commands of one local user, for whom a principal's data does not exist."""
READ = {
    "browse": [],
    "calls list": [],
    "calls show": ["call_"],
    "calls replay": ["call_", "target"],
    "memory list": [],
    "memory search": ["text"],
    "memory show": ["mem_"],
    "memory export": [],
    "tree list": [],
    "tree show": ["thread-"],
    "tree export": ["thread-"],
    "tree messages": ["node_"],
    "work list": [],
    "work show": ["held"],
}
"""Commands by which the operator reads all users' data, with their arguments."""
CHANGE = {
    "calls undo": ["call_", "target", "--yes"],
    "memory forget": ["mem_"],
    "tree label": ["thread-", "node_", "text"],
    "tree unlabel": ["thread-", "label-"],
    "tree prune": ["thread-", "--yes"],
    "work retry": ["held"],
    "work cancel": ["held"],
}
"""Commands by which the operator changes only the named data; their arguments name data of Bo."""
FOR_ALL = {"memory distill"}
"""Commands by which the operator lets a model learn for all users."""
REFUSED = {"browse": 2, "work retry": 1}
"""Exit statuses of refusals: ``browse`` needs a terminal, and no run of Bo waits for a worker to retry."""
TARGET = str(Path(__file__).parents[2] / "tests" / "chat" / "web.py")


def test_these_tests_cover_every_command_with_a_store() -> None:
    known = {*SERVE, *OWN, *READ, *CHANGE, *FOR_ALL}
    found = {*commands_with("--store")}
    assert found == known, (
        f"{sorted(found ^ known)}: say in {__file__} whose what such a command shows is, and in"
        " docs/command-line.md; or take it out there"
    )


async def test_a_chat_refuses_the_conversation_of_a_principal_and_finds_no_last_one(
    here: TwoUsers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = here.url
    lines = tmp_path / "lines"
    lines.write_text("/tree\n")
    run = partial(command, capsys, "chat", "--store", url, "--script", str(lines))
    before = rows_about(rows_of(url), [here.ann.word])
    asked = here.story.asked
    status, shown = await run("--thread", asked)
    assert status == 2
    assert f"The conversation {asked!r} belongs to a user of a web application" in shown
    status, shown = await run("--thread", "last")
    assert (status, "There is no conversation yet." in shown) == (2, True)
    assert not before - rows_of(url)
    status, shown = await command(
        capsys, "chat", "--store", url, "--thread", asked[:-1], "-p", "hello"
    )
    assert here.ann.word not in shown, "the beginning of an id is another id"


async def test_the_commands_of_the_operator_show_the_data_of_all_and_change_only_the_named_data(
    here: TwoUsers, capsys: pytest.CaptureFixture[str]
) -> None:
    url = here.url
    ids = ids_of(here.ann, here.bo.uses)
    known = {kind: values[0] for kind, values in ids.items()}
    known |= {"held": here.story.held, "target": TARGET, "text": "regatta"}
    known["thread-"] = here.story.asked
    [seen] = here.ann.done(f"GET {MOUNTED}/memories/{{id}}")
    known["mem_"] = seen.given["path"]["id"]
    known["call_"] = next(each for each in ids["call_"] if ":" not in each)
    before = rows_about(rows_of(url), [here.ann.word])
    for name, given in READ.items():
        words = [*name.split(), *(known[each] for each in given), "--store", url]
        status, shown = await command(capsys, *words)
        assert status == REFUSED.get(name, 0), f"{name}: {shown}"
        assert_unchanged(before, rows_of(url), name)
        if name in {"tree list", "tree show", "memory search", "calls show"}:
            assert here.ann.word in shown, f"{name} is the operator's"
    known |= await of_bo(here)
    for name, given in CHANGE.items():
        words = [*name.split(), *(known.get(each, each) for each in given), "--store", url]
        status, shown = await command(capsys, *words)
        assert status == REFUSED.get(name, 0), f"{name}: {shown}"
        assert_unchanged(before, rows_of(url), name)


async def of_bo(here: TwoUsers) -> dict[str, str]:
    """Return ids of Bo's data, among them a run in progress."""
    bo, ids = here.bo, ids_of(here.bo, here.ann.uses)
    [*_, labelled] = bo.done(f"POST {MOUNTED}/threads/{{id}}/labels")
    [seen] = bo.done(f"GET {MOUNTED}/memories/{{id}}")
    here.gates.closed[bo.word].clear()
    held = bo.new("thread")
    body = said(held, bo.fresh("run"), f'use hold {{"place": "{bo.word}"}}')
    given = {"body": body, "headers": {"accept": "application/json"}}
    assert (await here.web.do(bo, f"POST {MOUNTED}/agui", given)).is_done
    return {
        "call_": next(each for each in ids["call_"] if ":" not in each),
        "mem_": seen.given["path"]["id"],
        "thread-": labelled.given["path"]["id"],
        "node_": labelled.given["body"]["node_id"],
        "label-": ids["label-"][0],
        "held": held,
    }


async def test_lessons_of_an_operators_model_belong_to_the_user_of_the_branch(
    here: TwoUsers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lesson = {"title": "Boats", "description": "Before a regatta", "content": "Look at the wind."}
    replies = [
        {"when": '"known": ', "text": json.dumps([lesson]), "repeat": True},
        {"when": "regatta", "text": '{"outcome": "success"}', "repeat": True},
    ]
    script = tmp_path / "replies.json"
    script.write_text(json.dumps(replies))
    url = here.url
    before = rows_of(url)
    words = ["memory", "distill", "--model", f"script:{script}", "--store", url]
    status, shown = await command(capsys, *words)
    assert status == 0, shown
    gone = rows_about(before, [here.ann.word]) - rows_of(url)
    assert {row.split()[0] for row in gone} == {"anabranch_memory_queue"}
    learned = [row for row in rows_of(url) - before if lesson["content"] in row]
    assert sorted(row.split(" owner=")[1].split()[0] for row in learned) == ["ann", "bo"]


async def test_a_chat_in_a_terminal_shows_no_conversation_of_a_principal(
    here: TwoUsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Try every command of the chat with every kind of id."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_DATA", str(tmp_path))
    url = here.url
    ids, store = ids_of(here.ann, here.bo.uses), open_tree_store(url)
    before = rows_about(rows_of(url), [here.ann.word])
    terminal = TerminalSurface(store)
    attack = Attack(terminal, here.ann, User(None, "gull"), ids)
    # Run this first, before new threads push the others out of the list.
    await attack.run(["/threads"])
    found = await attack.run()
    await store.close()
    assert not found, "\n".join(found)
    assert not before - rows_of(url)


def assert_unchanged(before: Counter[str], after: Counter[str], name: str) -> None:
    assert not (gone := before - after), f"{name} has changed {gone}"


async def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run a command; return its exit status and its output."""
    status = await to_thread.run_sync(main, words)
    return status, "".join(capsys.readouterr())
