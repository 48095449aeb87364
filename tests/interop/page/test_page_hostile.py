"""Hostile texts in the page: the conversation stays usable, and a question can be answered."""

import pytest
from playwright.async_api import Browser, expect
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.chat import make_chat_app
from anabranch.testing import MockModel
from tests.agents.memory import MemoryTrees
from tests.chat.web import serving
from tests.interop.browsing import tab

HOSTILE = {
    "quotes": ">" * 5_000,
    "lists": "* " * 20_000,
    "lines": "- " + "a\n" * 20_000,
    "emphases": "a*" * 20_000,
    "mixed": "> - " * 10_000 + "[" * 10_000,
    "endless": "word " * 100_000,
}


class Fine(BaseModel):
    fine: bool = True


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_text_leaves_the_page_and_its_questions_usable(
    browser: Browser, text: str
) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        answer = await ctx.elicit(Fine, text)
        return "fine" if isinstance(answer, Accepted) else "not fine"

    app = make_chat_app(MemoryTrees(), MockModel(lambda _: text), [ask])
    async with serving(app) as address, tab(browser, address) as opened:
        page = opened.page
        await opened.say("hello")
        await expect(opened.messages.get_by_role("article", name="Model")).to_be_visible()
        await opened.say("/ask")
        await page.get_by_role("button", name="Accept").click()
        await expect(page.get_by_role("button", name="Accept")).to_have_count(0)
        await page.reload()
        await expect(opened.messages.get_by_role("article", name="Model").first).to_be_visible()
        await opened.say("and so on")
        last = opened.messages.get_by_role("article", name="You").last
        await expect(last).to_contain_text("and so on")
