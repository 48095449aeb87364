"""The page in a browser: a conversation, its questions, a reload, a restart, two tabs, 10,000 messages."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.interop.browsing import Tab, tab
from tests.interop.web_process import SEATS, serving


@dataclass(frozen=True)
class Chat:
    """A chat that several tests use, each in its own conversations."""

    folder: Path
    address: str


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    folder = tmp_path_factory.mktemp("chat")
    with serving(folder, "tools.py") as (_, address):
        yield Chat(folder, address)


async def test_a_question_has_a_form_and_its_tool_an_answer(browser: Browser, chat: Chat) -> None:
    async with tab(browser, chat.address) as opened:
        await opened.say("book")
        form = opened.question(SEATS)
        await expect(form.get_by_label("Diet")).to_have_value("none")
        await expect(form.get_by_text("For the <b>ticket</b>")).to_be_visible()
        await opened.screen("question-light-wide")
        seats = form.get_by_label("Seats")
        await seats.fill("99")
        await form.get_by_role("button", name="Accept").click()
        await expect(seats).to_have_attribute("aria-invalid", "true")
        await expect(seats).to_have_value("99")
        await seats.fill("3")
        await form.get_by_label("Diet").select_option("vegan")
        await form.get_by_label("Window seat").check()
        await form.get_by_role("button", name="Accept").click()
        await expect(opened.page.get_by_role("heading", name="Done")).to_be_visible()
        await opened.press(opened.page.locator("summary", has_text="book done"))
        await expect(opened.page.get_by_label("Result")).to_have_text("booked 3, vegan, True")
        await expect(opened.page.get_by_role("link")).to_have_count(0)
        await opened.screen("answered-light-wide")


async def test_a_question_can_be_declined_and_cancelled(browser: Browser, chat: Chat) -> None:
    async with tab(browser, chat.address) as opened:
        for number, button in enumerate(("Decline", "Cancel")):
            await opened.say("/book flight=AB2")
            await opened.question(SEATS).get_by_role("button", name=button).click()
            result = opened.messages.get_by_role("article", name="book").get_by_label("Result")
            await expect(result.nth(number)).to_have_text(f"not booked: {button.lower()}")


async def test_a_reload_and_a_killed_server_lose_nothing(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "tools.py") as (served, address):
        page = await browser.new_page()
        opened = Tab(page)
        await page.goto(address)
        await opened.say("book")
        await expect(opened.question(SEATS)).to_be_visible()
        await page.reload()
        await expect(opened.question(SEATS)).to_be_visible()
        served.kill()
        served.start()
        await page.reload()
        form = opened.question(SEATS)
        await form.get_by_label("Seats").fill("2")
        await form.get_by_role("button", name="Accept").click()
        # The killed process had a lease on the call, which has to end first.
        await expect(page.get_by_role("heading", name="Done")).to_be_visible()
        await page.close()
    assert (tmp_path / "done.txt").read_text() == "AB1\n"


async def test_two_tabs_show_one_conversation(browser: Browser, chat: Chat) -> None:
    context = await browser.new_context()
    async with tab(context, chat.address) as first:
        await first.say("book")
        await expect(first.question(SEATS)).to_be_visible()
        async with tab(context, first.page.url) as second:
            form = second.question(SEATS)
            await form.get_by_label("Seats").fill("4")
            await form.get_by_role("button", name="Accept").click()
            await expect(first.page.get_by_role("heading", name="Done")).to_be_visible()
            await expect(first.question(SEATS)).to_have_count(0)


async def test_a_message_is_edited_and_versions_are_switched(browser: Browser, chat: Chat) -> None:
    async with tab(browser, chat.address) as opened:
        page = opened.page
        await opened.say("code")
        await expect(page.get_by_role("button", name="Copy")).to_be_visible()
        await opened.press(page.get_by_role("button", name="Edit"))
        await opened.say("fork")
        await expect(opened.messages.get_by_text("Forked.")).to_be_visible()
        await opened.press(page.get_by_role("button", name="Previous version"))
        await expect(page.get_by_role("button", name="Copy")).to_be_visible()
        tree = page.get_by_role("tree", name="Conversation")
        await tree.get_by_role("treeitem", name=re.compile("You fork")).click()
        await expect(page.get_by_text("You continue from here")).to_be_visible()
        await opened.screen("fork-light-wide")


async def test_a_long_conversation_stays_usable(browser: Browser, chat: Chat) -> None:
    fill_thread(chat.folder / "chat.db", 10_000)
    async with tab(browser, f"{chat.address}?thread=long") as opened:
        await expect(opened.messages.get_by_text("message 9999")).to_be_visible()
        rows = opened.page.get_by_role("treeitem")
        await expect(rows.first).to_be_visible()
        assert await rows.count() < 200
        await opened.say("fork")
        await expect(opened.messages.get_by_text("Forked.")).to_be_visible()


def fill_thread(database: Path, number: int) -> None:
    """Write a thread of ``number`` nodes into the store, as another process does."""
    program = f"""
import asyncio
from anabranch.messages import TextBlock
from anabranch.stores import open_tree_store
from anabranch.tree import Node, Ref, Thread

async def main():
    store = open_tree_store("sqlite:///{database}")
    await store.create_thread(Thread("long", 0.0))
    nodes, parent = [], None
    for index in range({number}):
        kind = "user" if index % 2 == 0 else "assistant"
        text = TextBlock(text=f"message {{index}}")
        nodes.append(Node(f"n{{index}}", "long", parent, kind, (text,), float(index)))
        parent = f"n{{index}}"
    await store.append(nodes, refs=[Ref("head", parent)])
    await store.close()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True)
