"""The memory room in a browser: memories are searched, shown and forgotten by keyboard; audited."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, expect

from anabranch.chat import make_chat_app
from anabranch.memory import Draft, ReasoningBank
from anabranch.stores import open_memory_store
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, serving
from tests.interop.browsing import LOOKS, NARROW, Look, audited, tab


@asynccontextmanager
async def remembering() -> AsyncGenerator[str]:
    """Yield the address of an application that remembers two things."""
    store = open_memory_store("memory:")
    bank = ReasoningBank(store)
    for title, content in (("Slow builds", "Look at the cache."), ("<b>Locks</b>", "Ask first.")):
        await bank.record(Draft(title=title, description="When it is so", content=content))
    async with serving(make_chat_app(MemoryTrees(), model(), memory=lambda _: bank)) as address:
        yield f"{address}/"
    await store.close()


async def test_memories_are_searched_shown_and_forgotten_by_keyboard(browser: Browser) -> None:
    async with remembering() as address, tab(browser, address) as opened:
        page = opened.page
        await page.get_by_role("link", name="Memory").click()
        memories = page.get_by_role("complementary", name="Memories")
        await expect(memories.get_by_role("status")).to_have_text("2 found")
        await page.get_by_role("searchbox", name="Search").fill("a build is slow")
        await page.keyboard.press("Enter")
        await expect(memories.get_by_role("status")).to_have_text("1 found")
        await memories.get_by_role("button", name="Slow builds").focus()
        await page.keyboard.press("Enter")
        shown = page.get_by_role("article", name="Slow builds")
        await expect(shown.get_by_text("Look at the cache.")).to_be_visible()
        await expect(shown.get_by_text("0.75")).to_be_visible()
        await expect(shown.get_by_text("recorded")).to_be_visible()

        forget = shown.get_by_role("button", name="Forget")
        await forget.focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Forget")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(forget).to_be_focused()
        await page.keyboard.press("Enter")
        await dialog.get_by_role("button", name="Forget").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Choose a note")).to_be_visible()
        await page.get_by_role("searchbox", name="Search").fill("")
        await page.keyboard.press("Enter")
        await expect(memories.get_by_role("status")).to_have_text("1 found")
        await expect(memories.get_by_role("button", name="<b>Locks</b>")).to_be_visible()


@LOOKS
async def test_an_audit_of_the_room_finds_nothing_serious(browser: Browser, look: Look) -> None:
    async with (
        remembering() as address,
        audited(browser, f"{address}?room=memory", look) as (opened, audit),
    ):
        page = opened.page
        if look == NARROW:
            await page.get_by_role("button", name="Memories").click()
        await expect(page.get_by_role("status")).to_have_text("2 found")
        await audit("memory")
        await page.get_by_role("button", name="Slow builds").click()
        await page.get_by_role("button", name="Forget").click()
        await expect(page.get_by_role("dialog", name="Forget")).to_be_visible()
        await audit("forget")
