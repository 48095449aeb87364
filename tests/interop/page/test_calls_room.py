"""The calls page in a browser: a call of an MCP server over the same store, and another answer to it."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from anabranch import BranchContext, tool
from anabranch._durable import NAMED
from anabranch.chat import make_chat_app
from anabranch.stores import open_stores
from tests.chat.web import model
from tests.chat.web import serving as serving_app
from tests.interop.browsing import LOOKS, NARROW, Look, Tab, audited, tab
from tests.interop.web_process import SEATS, serving

PROGRAM = """
import asyncio

import mcp_types as types
from mcp import Client

from anabranch.mcp import create_server
from tools import book


async def user(context, params):
    return types.ElicitResult(action="accept", content={"seats": 3})


async def main():
    server = create_server("flights", [book], keys=["k" * 32], store="sqlite:///chat.db")
    async with Client(server, mode="2026-07-28", elicitation_callback=user) as client:
        await client.call_tool("book", {"flight": "<b>ZZ9</b>"})


asyncio.run(main())
"""
SHOWN = ("tools.py", "--calls", "values")
AT_ONCE = "const after = setTimeout; setTimeout = (call) => after(call, 0);"
"""Has what the page does later done at once."""
ROUND_TRIP = "fetch('threads').then((response) => response.text())"
"""After it, what the page has sent before is known here, and what it was sent before is known to it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Yield the page's address, next to an MCP server that has recorded a call."""
    with serving(folder, *SHOWN) as (_, found):
        subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, check=True)
        yield found


def recorded(page: Page) -> Locator:
    """Return the link that opens that call; calls that started from another answer are younger."""
    return page.get_by_role("button", name=re.compile("book call_")).last


@LOOKS
async def test_an_audit_of_the_room_finds_nothing_serious(
    browser: Browser, address: str, look: Look
) -> None:
    async with audited(browser, f"{address}?room=calls", look) as (opened, audit):
        page = opened.page
        if look == NARROW:
            await page.get_by_role("button", name="Calls").focus()
            await page.keyboard.press("Enter")
        await opened.press(recorded(page))
        await expect(page.get_by_label("Returned")).to_be_visible()
        await page.get_by_role("button", name=re.compile("differently")).click()
        await expect(page.get_by_role("region", name=SEATS)).to_be_visible()
        await audit("calls-audit")


async def test_a_failed_answer_is_not_sent_again_after_its_form_was_closed(
    browser: Browser, address: str
) -> None:
    """The tool's effects after the question would really happen."""
    page = await browser.new_page()
    await page.add_init_script(AT_ONCE)
    opened = Tab(page)
    await page.goto(f"{address}?room=calls")
    sent = asyncio.Queue[Route]()
    await page.route("**/answers", sent.put)
    await recorded(page).click()
    await page.get_by_role("button", name=re.compile("booking.1 differently")).click()
    form = page.get_by_role("region", name=SEATS)
    await form.get_by_label("Seats").fill("7")
    await form.get_by_role("button", name="Accept").click()
    route = await sent.get()
    await page.get_by_role("button", name="Keep the answer").click()
    await expect(form).to_have_count(0)
    await route.abort()
    for _ in range(3):  # the page would reject it, send it again, and show it here
        await page.evaluate(ROUND_TRIP)
    assert sent.empty()
    assert [each for each in opened.faults if "answers" not in each] == []
    await page.unroute_all(behavior="ignoreErrors")
    await page.close()


async def test_a_call_of_a_server_is_shown_and_answered_differently(
    browser: Browser, folder: Path, address: str
) -> None:
    async with tab(browser, address) as opened:
        page = opened.page
        await page.get_by_role("link", name="Calls").click()
        await recorded(page).click()
        call = page.get_by_role("article", name=re.compile("Call call_"))
        await expect(call.get_by_label("Returned")).to_have_text("booked 3, none, False")
        await expect(call.get_by_label("Value of reserve.1")).to_have_text("<b>ZZ9</b>")
        rounds = call.get_by_role("region", name="Rounds")
        await rounds.get_by_role("button", name=re.compile("1 asked")).click()
        await expect(rounds.get_by_text("the steps up to round 1")).to_be_visible()
        await expect(call.get_by_label("Value of booking.1")).to_have_count(0)
        await rounds.get_by_role("button", name=re.compile("2 returned")).click()
        await opened.screen("calls-light-wide")
        await call.get_by_role("button", name=re.compile("booking.1 differently")).click()
        form = page.get_by_role("region", name=SEATS)
        await form.get_by_label("Seats").fill("99")
        await form.get_by_role("button", name="Accept").click()
        await expect(form.get_by_label("Seats")).to_have_attribute("aria-invalid", "true")
        await form.get_by_label("Seats").fill("7")
        await form.get_by_role("button", name="Accept").click()
        await expect(page.get_by_label("Returned")).to_have_text("booked 7, none, False")
        await page.go_back()
        await expect(page.get_by_label("Returned")).to_have_text("booked 3, none, False")
    assert (folder / "done.txt").read_text() == "<b>ZZ9</b>\n"


async def test_the_room_knows_every_state_and_until_when_a_stopped_call_is_kept(
    browser: Browser,
) -> None:
    @tool
    async def watch(ctx: BranchContext) -> str:
        await ctx.notify("Watching")
        await asyncio.Event().wait()
        return "never"

    calls, trees = open_stores("memory:")
    app = make_chat_app(trees, model(), [watch], calls=calls, recorded_calls="values")
    async with serving_app(app) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("/watch")
        await expect(page.get_by_text("Watching")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(opened.messages.get_by_text("Stopped by you.")).to_be_visible()
        await page.get_by_role("link", name="Calls").click()
        status = page.get_by_label("Status")
        await expect(status).to_be_visible()
        states = await status.locator("option").evaluate_all("all => all.map(each => each.value)")
        assert set(states) == {"", *NAMED}
        await status.select_option("stopped")
        await page.get_by_role("button", name=re.compile("watch call_")).click()
        call = page.get_by_role("article", name=re.compile("Call call_"))
        await expect(call.get_by_role("heading", name="watch stopped")).to_be_visible()
        await expect(call.get_by_role("term").filter(has_text="Deleted after")).to_be_visible()
        await expect(call.get_by_role("term").filter(has_text="Expires")).to_have_count(0)
    await trees.close()


async def test_a_call_of_the_chat_leads_to_its_conversation_and_is_answered_differently(
    browser: Browser, tmp_path: Path
) -> None:
    with serving(tmp_path, *SHOWN) as (_, address):
        async with tab(browser, address) as opened:
            page = opened.page
            await opened.say("/book flight=AB2")
            await expect(opened.question(SEATS)).to_be_visible()
            await page.get_by_role("link", name="Calls").click()
            await page.get_by_role("button", name=re.compile("book call_")).click()
            await page.get_by_role("link", name=re.compile("^thread_")).click()
            await opened.question(SEATS).get_by_label("Seats").fill("3")
            await opened.question(SEATS).get_by_role("button", name="Accept").click()
            done = opened.messages.get_by_role("group").filter(has_text=re.compile("book.*done"))
            await expect(done).to_be_visible()
            await page.get_by_role("link", name="Calls").click()
            await page.get_by_role("button", name=re.compile("book call_")).click()
            await page.get_by_role("button", name=re.compile("booking.1 differently")).click()
            form = page.get_by_role("region", name=SEATS)
            await form.get_by_label("Seats").fill("7")
            await form.get_by_role("button", name="Accept").click()
            answer = opened.messages.get_by_role("group", name="Your answer")
            await expect(answer.get_by_role("definition").first).to_have_text("7")
            await expect(done).to_be_visible()
            await answer.get_by_role("button", name="Previous version").click()
            await expect(answer.get_by_role("definition").first).to_have_text("3")
    assert (tmp_path / "done.txt").read_text() == "AB2\n"  # on both lines, once
