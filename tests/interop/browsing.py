"""A browser, and its tabs, which must complain of nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

HERE = Path(__file__).parent
ARTEFACTS = HERE.parents[1] / "build" / "screens"
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"

expect.set_options(timeout=60_000)  # milliseconds; a busy machine is no fault of the page


@asynccontextmanager
async def launched() -> AsyncGenerator[Browser]:
    """Yield the system's browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "make interop installs it: apt-get install chromium"
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        await found.close()


SHOWN = """Promise.allSettled(document.getAnimations()
    .filter(each => each.effect.getComputedTiming().endTime !== Infinity)
    .map(each => each.finished)).then(() => true)"""
"""Waits for the end of all animations that have one."""


class Tab:
    """A page, and what it complains of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("request", self._requested)

    def _said(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.faults.append(f"{kind}: {text}")

    def _failed(self, request: Any) -> None:
        if not request.url.partition("?")[0].endswith("/events"):  # left when the page is left
            self.faults.append(f"failed: {request.url}")

    def _requested(self, request: Any) -> None:
        if not request.url.startswith("http://127.0.0.1:"):
            self.faults.append(f"leaves the host: {request.url}")

    async def say(self, text: str) -> None:
        await self.page.get_by_role("textbox", name="Message").fill(text)
        await self.page.get_by_role("button", name="Send").click()

    @property
    def messages(self) -> Locator:
        return self.page.get_by_role("log")

    def question(self, message: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("region", name=message)

    async def screen(self, name: str) -> None:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    async def serious(self) -> list[tuple[str, list[str]]]:
        """What an audit of accessibility finds; the context must bypass the page's policy."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.add_script_tag(path=AXE)
        await self.page.evaluate(SHOWN)  # what appears is pale until then
        report = await self.page.evaluate("axe.run()")
        return [
            (each["id"], [node["html"] for node in each["nodes"]])
            for each in report["violations"]
            if each["impact"] in {"serious", "critical"}
        ]


@asynccontextmanager
async def tab(
    browser: Browser | BrowserContext, address: str, **options: Any
) -> AsyncGenerator[Tab]:
    """Yield a page at ``address``; it must complain of nothing."""
    page = await browser.new_page(**options)
    opened = Tab(page)
    await page.goto(address)
    yield opened
    await page.close()
    assert opened.faults == []
