"""The full-screen browser, played by its headless pilot, and the command that opens it."""

import builtins
import sys
from functools import partial
from typing import Any, cast

import pytest
from textual.widgets import Tree as TreeWidget

from anabranch.cli._browser import Browser
from anabranch.cli._chat_commands import command_for
from anabranch.errors import install_command
from anabranch.tree import Tree
from tests.chat.sessions import feed, session, tree_of
from tests.cli.browsing import browsing, details, until
from tests.cli.chats import Desk
from tests.cli.running import Run
from tests.cli.terminals import CTRL_C, terminal


async def forked() -> Tree:
    chat = session()
    await feed(chat, "hello", "/label start", "fork one two", "/fork b1", "/add a=41", "/fork b2")
    return await tree_of(chat)


def widget(app: Browser) -> TreeWidget[Any]:
    return cast("TreeWidget[Any]", app.query_one("#tree"))


def has(app: Browser, words: str) -> bool:
    return words in details(app)


async def test_the_browser_starts_at_the_head_with_everything_expanded() -> None:
    app = Browser(await forked())
    async with browsing(app):
        assert "You said: (self-prompt): two" in details(app)
        nodes = [widget(app).get_node_at_line(line) for line in range(9)]
        lines = [str(node.label) for node in nodes if node is not None]
        assert lines == [
            "user  hello",
            "assistant  You said: hello  (start)",
            "user  fork one two",
            "assistant  Forking. → branch_self(…)",
            "b1 branch  (self-prompt): one",
            "assistant  You said: (self-prompt): one",
            "user  /add a=41",
            "assistant  add(…)",
            "results  ← 42",
        ]


async def test_a_smaller_window_fits_every_widget() -> None:
    app = Browser(await forked())

    def fits() -> bool:
        shown = [app.screen, *app.screen.query("#tree, #details, Footer, Input")]
        return app.size == (60, 15) and all(
            app.screen.region.contains_region(each.region) for each in shown
        )

    async with browsing(app) as pilot:
        await pilot.resize_terminal(60, 15)
        await until(pilot, fits)
        assert str(widget(app).render_line(0).text).strip().endswith("user  hello")


async def test_keys_walk_and_details_follow() -> None:
    app = Browser(await forked())
    steps = {
        "home": "hello",
        "down": "You said: hello",
        "down down": "→ branch_self({'prompts': ['one', 'two']})",
        "h": "(self-prompt): two",
    }
    async with browsing(app) as pilot:
        for keys, words in steps.items():
            await pilot.press(*keys.split())
            await until(pilot, partial(has, app, words))


async def test_results_of_tools_are_among_the_details() -> None:
    tree = await forked()
    *_, results = (node for node in tree.nodes if node.kind == "results")
    app = Browser(tree)
    async with browsing(app) as pilot:
        await pilot.press("g", *results.id, "enter")
        await until(pilot, lambda: "← 42" in details(app))


async def test_collapse_and_expand() -> None:
    app = Browser(await forked())
    async with browsing(app) as pilot:
        before = widget(app).last_line
        await pilot.press("f")
        await until(pilot, lambda: widget(app).last_line == 5)
        # Nodes that continue after a fork stay on the line of the fork.
        drawn = [widget(app).get_node_at_line(line) for line in range(6)]
        assert [str(each.label).split()[0] for each in drawn if each is not None] == [
            *["user", "assistant", "user", "assistant", "results", "assistant"]
        ]
        await pilot.press("e")
        await until(pilot, lambda: widget(app).last_line == before)


async def test_go_to_a_label_or_a_branch_opens_collapsed_nodes() -> None:
    app = Browser(await forked())
    async with browsing(app) as pilot:
        await pilot.press("f", "g", *"b1", "enter")
        await until(pilot, lambda: "b1" in details(app).splitlines()[0])
        await pilot.press("g", *"start", "enter")
        await until(pilot, lambda: "You said: hello" in details(app))


async def test_an_unknown_name_is_reported_and_escape_leaves_the_question() -> None:
    app = Browser(await forked())
    find = "#find.open"
    async with browsing(app) as pilot:
        before = details(app)
        await pilot.press("g", *"nowhere", "enter")
        # The pilot has no other way to read the shown notifications.
        shown = app._notifications
        await until(pilot, lambda: len(shown) > 0)
        assert [str(each.message) for each in shown] == [
            "There is no label, branch or node 'nowhere'."
        ]
        assert app.screen.query(find)
        await pilot.press("escape")
        await until(pilot, lambda: not app.screen.query(find))
        assert details(app) == before


async def test_continue_here_returns_the_node_and_quit_returns_none() -> None:
    tree = await forked()
    app = Browser(tree)
    async with browsing(app) as pilot:
        await pilot.press("g", *"start", "enter")
        await until(pilot, lambda: "You said: hello" in details(app))
        await pilot.press("c")
    assert app.return_value == tree.refs["start"]
    app = Browser(tree)
    async with browsing(app) as pilot:
        await pilot.press("q")
    assert app.return_value is None


async def test_ctrl_c_leaves_also_while_a_name_is_typed() -> None:
    app = Browser(await forked())
    async with browsing(app) as pilot:
        await pilot.press("g", "b", "ctrl+c")
    assert (app.return_value, app.return_code) == (None, 130)


@pytest.mark.usefixtures("thread")
def test_without_a_terminal_there_is_no_browsing(run: Run) -> None:
    assert run.refusal("browse", "t") == (
        "anabranch: There is no terminal to browse at. anabranch tree show works without the extra.\n"
    )


@pytest.mark.usefixtures("thread")
def test_quitting_the_browser_restores_the_terminal() -> None:
    with terminal("browse", "t", status=130, whole=True) as user:
        user.wait_until(lambda screen: "user  hello" in screen and "Continue" in screen)
        user.store("browse")
        user.type(CTRL_C)
        user.wait_for("anabranch: cancelled")


def test_the_command_to_continue_is_quoted_for_the_shell() -> None:
    assert command_for("t", "n", None) == "anabranch chat --thread t --at n"
    url = "sqlite:///a b.db"
    assert command_for("t", "n", url).endswith("--at n --store 'sqlite:///a b.db'")


@pytest.fixture
def thread(desk: Desk) -> None:
    desk.lead("--thread", "t", lines="hello")


@pytest.mark.usefixtures("thread")
def test_browsing_without_the_extra_names_the_extra(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("textual"):
            raise ModuleNotFoundError(name="textual")
        return known(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "anabranch.cli._browser", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert run.refusal("browse", "t") == (
        "anabranch: `anabranch browse t` needs the package 'textual', which is not installed. anabranch tree"
        f" show works without the extra. Install it: {install_command('tui')}\n"
    )


@pytest.mark.usefixtures("desk")
def test_without_a_conversation_there_is_nothing_to_browse(run: Run) -> None:
    assert "There is no conversation yet." in run.refusal("browse")
    assert run("browse", "t").status == 1
