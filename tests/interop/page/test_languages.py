"""Input methods, and texts from right to left."""

from playwright.async_api import Browser, CDPSession, Locator, Page, expect
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool
from anabranch._schemas import Form
from anabranch.chat import make_chat_app
from anabranch.testing import MockModel
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.interop.browsing import tab
from tests.mcp.link_pages import page_of


class Guest(BaseModel):
    name: str = Field(title="שם", description="الاسم كما في الجواز")
    note: str = Field(default="", title="Note", max_length=900)


@tool
async def register(ctx: BranchContext) -> str:
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

    With a ``text``, the key also types the text, by which a browser submits a form.
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


REPLY = """שלום עולם

English, then עברית.

1. פריט ראשון
2. `npm` פריט שני

> ציטוט

```
const a = "שלום";
```
"""
RIGHT = """element => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const text = range.getBoundingClientRect(), box = element.getBoundingClientRect();
  return box.right - text.right < text.left - box.left;
}"""


async def direction(element: Locator) -> str:
    found: str = await element.evaluate("element => getComputedStyle(element).direction")
    return found


async def test_each_text_has_its_own_direction_and_code_has_none(browser: Browser) -> None:
    app = make_chat_app(MemoryTrees(), replying(REPLY), [register])
    async with serving(app) as address, tab(browser, address) as opened:
        box = opened.page.get_by_role("textbox", name="Message")
        await box.fill("سلام دنیا")
        assert await direction(box) == "rtl"
        await box.press("Enter")
        reply = opened.messages.get_by_role("article", name="Model")
        await expect(reply.locator("pre")).to_be_visible()
        own = opened.messages.get_by_role("article", name="You").locator("p")
        hebrew, english = await reply.locator(".markdown > p").all()
        assert await hebrew.evaluate(RIGHT)
        assert not await english.evaluate(RIGHT)
        assert await own.evaluate("e => getComputedStyle(e).unicodeBidi") == "plaintext"
        assert await direction(reply.locator("ol")) == "rtl"
        assert await direction(reply.locator("blockquote")) == "rtl"
        assert await direction(reply.locator("li code")) == "ltr"
        assert await direction(reply.locator("pre code")) == "ltr"
        assert not await reply.locator("pre").evaluate(RIGHT)
        await opened.say("/register")
        form = opened.question("مرحبا بكم")
        assert await form.locator(".markdown > p").evaluate(RIGHT)
        assert await form.locator(".hint").nth(1).evaluate(RIGHT)  # after the deadline
        for label in ("שם", "Note"):
            field = form.get_by_label(label)
            await field.fill("שלום")
            assert await direction(field) == "rtl"
            await field.fill("Ida")
            assert await direction(field) == "ltr"


async def test_a_linked_page_has_the_direction_of_its_texts(browser: Browser) -> None:
    choices = {"type": "array", "title": "תוספות", "items": {"enum": ["ארוחה"]}}
    fields = {"name": {"type": "string", "title": "שם", "description": "הערה"}, "more": choices}
    form = Form.model_validate({"properties": fields, "required": ["name"]})
    page = await browser.new_page()
    await page.set_content(page_of("مرحبا\n\nWelcome", form))
    assert await direction(page.locator(".message")) == "rtl"
    for text in ("label.name", ".hint >> nth=0"):
        assert await page.locator(text).evaluate(RIGHT)
    assert await direction(page.locator("fieldset")) == "rtl"
    assert await direction(page.get_by_label("ארוחה").locator("xpath=../..")) == "rtl"
    name = page.get_by_label("שם")
    await name.fill("שלום")
    assert await direction(name) == "rtl"
    await name.fill("Ida")
    assert await direction(name) == "ltr"
