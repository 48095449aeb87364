"""Input methods."""

from __future__ import annotations

from playwright.async_api import Browser, CDPSession, Page, expect
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool
from anabranch.chat import make_chat_app
from anabranch.testing import MockModel
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.interop.browsing import tab


class Guest(BaseModel):
    name: str = Field(title="שם", description="الاسم كما في الجواز")
    note: str = Field(default="", title="Note", max_length=900)


@tool
async def register(ctx: BranchContext) -> str:
    """Ask for a name."""
    answer = await ctx.elicit(Guest, "مرحبا بكم")
    return f"{answer.action}: {answer.content.name if isinstance(answer, Accepted) else ''}"


def replying(text: str) -> MockModel:
    return MockModel(lambda _: text)


async def confirm(session: CDPSession, *, code: int, text: str) -> None:
    """Press the Enter that confirms a word of an input method."""
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": code, "text": text}
    await session.send("Input.dispatchKeyEvent", {"type": "keyDown", **key})
    await session.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})


async def compose(page: Page, word: str, *, text: str = "") -> None:
    """Write ``word`` by an input method, and confirm it as Chromium and as Safari do.

    With a ``text``, the key also types it, by which a browser submits a form.
    """
    session = await page.context.new_cdp_session(page)
    composed = {"text": word, "selectionStart": len(word), "selectionEnd": len(word)}
    await session.send("Input.imeSetComposition", composed)
    await confirm(session, code=13, text=text)
    await session.send("Input.insertText", {"text": word})
    await confirm(session, code=229, text=text)
    await session.detach()


async def test_an_enter_that_confirms_a_word_sends_nothing(browser: Browser) -> None:
    app = make_chat_app(MemoryTrees(), replying("はい"), [register])
    async with serving(app) as address, tab(browser, address) as opened:
        box = opened.page.get_by_role("textbox", name="Message")
        await box.focus()
        await compose(opened.page, "東京")
        await expect(box).to_have_value("東京")
        await opened.page.keyboard.press("Enter")
        sent = opened.messages.get_by_role("article", name="You")
        await expect(sent).to_have_count(1)
        await expect(sent).to_contain_text("東京")
        await expect(opened.messages.get_by_text("はい")).to_be_visible()
        await opened.say("/register")
        form = opened.question("مرحبا بكم")
        await form.get_by_label("שם").focus()
        await compose(opened.page, "東京", text="\r")
        await expect(form.get_by_label("שם")).to_have_value("東京")
        await opened.page.keyboard.press("Enter")
        await expect(form).to_have_count(0)
        await opened.page.reload()
        await expect(opened.messages.get_by_text("accept: 東京")).to_be_visible()
