"""The memory room in a browser: memories are searched, shown and forgotten by keyboard; audited."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, ViewportSize, expect

from anabranch.chat import make_chat_app
from anabranch.memory import Draft, ReasoningBank
from anabranch.stores import open_memory_store
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, serving
from tests.interop.browsing import tab
from tests.interop.test_page import browser

__all__ = ["browser"]


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

        await shown.get_by_role("button", name="Forget").focus()
        await page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name="Forget")
        await expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await page.keyboard.press("Enter")
        await dialog.get_by_role("button", name="Forget").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Choose a memory")).to_be_visible()
        await page.get_by_role("searchbox", name="Search").fill("")
        await page.keyboard.press("Enter")
        await expect(memories.get_by_role("status")).to_have_text("1 found")
        await expect(memories.get_by_role("button", name="<b>Locks</b>")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "width"), [("wide", 1200), ("narrow", 390)])
async def test_an_audit_of_the_room_finds_nothing_serious(
    browser: Browser, scheme: Any, shape: str, width: int
) -> None:
    size: ViewportSize = {"width": width, "height": 800}
    async with remembering() as address:
        context = await browser.new_context(color_scheme=scheme, viewport=size, bypass_csp=True)
        async with tab(context, f"{address}?room=memory") as opened:
            page = opened.page
            if shape == "narrow":
                await page.get_by_role("button", name="Memories").click()
            await expect(page.get_by_role("status")).to_have_text("2 found")
            assert await opened.serious() == []
            await page.get_by_role("button", name="Slow builds").click()
            await page.get_by_role("button", name="Forget").click()
            await expect(page.get_by_role("dialog", name="Forget")).to_be_visible()
            assert await opened.serious() == []
            await opened.screen(f"memory-{scheme}-{shape}")
        await context.close()
