"""The page in a browser: a conversation, its questions, a reload, a restart, two tabs, a keyboard."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.interop.browsing import Tab, launched, tab

TOOLS = '''
from pathlib import Path
from typing import Literal
from pydantic import BaseModel, Field
from anabranch import Accepted, BranchContext, Elicitation, tool

DONE = Path("done.txt")

class Booking(BaseModel):
    """What is asked."""
    seats: int = Field(title="Seats", ge=1, le=9)
    diet: Literal["none", "vegan"] = Field(default="none", title="Diet")
    window: bool = Field(default=False, title="Window seat")
    mail: str = Field(default="", title="E-mail", description="For the <b>ticket</b>")

BOOKING = Elicitation("booking", Booking)

def reserve(flight):
    with DONE.open("a") as file:
        file.write(flight + "\\n")
    return flight

@tool(elicits=[BOOKING])
async def book(ctx: BranchContext, flight: str = "AB1") -> str:
    """Book a flight."""
    await ctx.notify("Looking", 1, 2)
    await ctx.step(reserve, flight)
    answer = await ctx.elicit(BOOKING, "How many <script>alert(1)</script> seats?")
    if not isinstance(answer, Accepted):
        return f"not booked: {answer.action}"
    return f"booked {answer.content.seats}, {answer.content.diet}, {answer.content.window}"
'''

SCRIPT: list[dict[str, Any]] = [
    {"text": "Forked.", "when": "fork", "repeat": True},
    {
        "text": "# Done\n\n`x = 1` and [a link](javascript:alert(1))",
        "when": "booked",
        "repeat": True,
    },
    {
        "text": "I will book it. <img src=x onerror=alert(1)>",
        "tool_calls": [{"name": "book", "arguments": {}}],
        "when": "book",
        "repeat": True,
    },
    {"text": "```python\nprint(1)\n```", "when": "code", "repeat": True},
]


class Served:
    """``anabranch web`` as a process, which can be killed and started again."""

    def __init__(self, folder: Path, *targets: str, model: bool = True) -> None:
        self._folder = folder
        self._targets = targets
        self._model = ["--model", "script:script.json"] if model else []
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        (folder / "tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    def start(self) -> str:
        """Start it, on the port that it had before, and return its address."""
        command = [sys.executable, "-m", "anabranch", "web", *self._targets, *self._model]
        command += ["--port", str(self.port), "--store", "sqlite:///chat.db"]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"The chat is at (http://127\.0\.0\.1:(\d+)/)", line):
                self.port = int(found[2])
                return found[1]
        raise AssertionError("it did not start")

    def kill(self) -> None:
        """End it as a crash does."""
        assert self._process is not None
        with self._process:
            self._process.kill()

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        if self._process is not None and self._process.poll() is None:
            with self._process:
                self._process.send_signal(signal.SIGINT)
                self._process.wait(120)


@contextmanager
def serving(folder: Path, *targets: str, model: bool = True) -> Generator[tuple[Served, str]]:
    served = Served(folder, *targets, model=model)
    try:
        yield served, served.start()
    finally:
        served.stop()


@pytest.fixture
async def browser() -> AsyncGenerator[Browser]:
    async with launched() as found:
        yield found


SEATS = re.compile("How many")


async def test_the_game_is_played_without_model_network_or_arguments(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, model=False) as (_, address):
        async with tab(browser, address) as opened:
            await opened.say("hello")
            form = opened.question(re.compile("Pick a card"))
            number = form.get_by_label("Card number")
            await number.fill("99")
            await form.get_by_role("button", name="Accept").click()
            await expect(number).to_have_attribute("aria-invalid", "true")
            await expect(number).to_have_value("99")
            await number.fill("2")
            await form.get_by_role("button", name="Accept").click()
            await expect(opened.messages.get_by_text("That was one tool")).to_be_visible()
            await expect(form).to_have_count(0)


async def test_a_question_has_a_form_and_its_answer_reaches_the_tool(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        async with tab(browser, address) as opened:
            await opened.say("book")
            form = opened.question(SEATS)
            await expect(form.get_by_label("Diet")).to_have_value("none")
            await expect(form.get_by_text("For the <b>ticket</b>")).to_be_visible()
            await opened.screen("question-light-wide")
            await form.get_by_label("Seats").fill("3")
            await form.get_by_label("Diet").select_option("vegan")
            await form.get_by_label("Window seat").check()
            await form.get_by_role("button", name="Accept").click()
            await expect(opened.page.get_by_role("heading", name="Done")).to_be_visible()
            await opened.press(opened.page.locator("summary", has_text="book done"))
            await expect(opened.page.get_by_label("Result")).to_have_text("booked 3, vegan, True")
            assert await opened.page.get_by_role("link").count() == 0
            await opened.screen("answered-light-wide")


@pytest.mark.parametrize("button", ["Decline", "Cancel"])
async def test_a_question_can_be_declined_and_cancelled(
    browser: Browser, tmp_path: Path, button: str
) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        async with tab(browser, address) as opened:
            await opened.say("/book flight=AB2")
            await opened.question(SEATS).get_by_role("button", name=button).click()
            result = opened.page.get_by_label("Result")
            await expect(result).to_have_text(f"not booked: {button.lower()}")


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


async def test_two_tabs_show_one_conversation(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        context = await browser.new_context()
        async with tab(context, address) as first:
            await first.say("book")
            await expect(first.question(SEATS)).to_be_visible()
            async with tab(context, first.page.url) as second:
                form = second.question(SEATS)
                await form.get_by_label("Seats").fill("4")
                await form.get_by_role("button", name="Accept").click()
                await expect(first.page.get_by_role("heading", name="Done")).to_be_visible()
                await expect(first.question(SEATS)).to_have_count(0)


async def test_a_message_is_edited_and_versions_are_switched(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        async with tab(browser, address) as opened:
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


async def test_another_message_leaves_the_question(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        async with tab(browser, address) as opened:
            await opened.say("book")
            await expect(opened.question(SEATS)).to_be_visible()
            await opened.say("fork")
            await expect(opened.messages.get_by_text("Forked.")).to_be_visible()
            await expect(opened.question(SEATS)).to_have_count(0)


async def test_a_keyboard_is_enough(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        async with tab(browser, address) as opened:
            page = opened.page
            box = page.get_by_role("textbox", name="Message")
            await box.focus()
            await opened.type("book")
            seats = opened.question(SEATS).get_by_label("Seats")
            await seats.focus()
            await page.keyboard.type("5")
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("heading", name="Done")).to_be_visible()
            items = page.get_by_role("treeitem")
            await items.last.focus()
            await page.keyboard.press("Home")
            await expect(items.first).to_be_focused()
            await page.keyboard.press("Enter")
            await expect(items.first).to_have_attribute("aria-selected", "true")


async def test_a_long_conversation_stays_usable(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path, "tools.py") as (_, address):
        fill_thread(tmp_path / "chat.db", 10_000)
        async with tab(browser, f"{address}?thread=long") as opened:
            await expect(opened.messages.get_by_text("message 9999")).to_be_visible()
            assert await opened.page.get_by_role("treeitem").count() < 200
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
