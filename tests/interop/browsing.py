"""A browser and its tabs, whose pages must report no faults."""

import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    ViewportSize,
    async_playwright,
    expect,
)

HERE = Path(__file__).parent
ARTEFACTS = HERE.parents[1] / "build" / "screens"
AXE = HERE / "page" / "node_modules" / "axe-core" / "axe.min.js"

PATIENCE = 120_000  # milliseconds; a busy machine is no fault of the page
expect.set_options(timeout=PATIENCE)

LEFT = "net::ERR_ABORTED"
"""The failure of a request whose page has been left, or that the page itself has ended."""


@asynccontextmanager
async def launched() -> AsyncGenerator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "`make browser` installs it: apt-get install chromium"
    async with async_playwright() as playwright:
        found = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        await found.close()


class Look(TypedDict):
    color_scheme: Literal["light", "dark"]
    viewport: ViewportSize


class Tab:
    """A page, and the faults that it reports."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("console", self._said)
        page.on("request", self._requested)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.faults.append(f"{message.type}: {message.text} ({message.location['url']})")

    def _failed(self, request: Request) -> None:
        if request.failure != LEFT:
            self.faults.append(f"failed: {request.url}: {request.failure}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith("http://127.0.0.1:"):
            self.faults.append(f"leaves the host: {request.url}")

    async def say(self, text: str) -> None:
        await self.page.get_by_role("textbox", name="Message").fill(text)
        await self.page.get_by_role("button", name="Send").click()

    async def type(self, text: str) -> None:
        """Send a message by the keyboard, once the box has the focus and no run is open."""
        await self.page.keyboard.type(text)
        await expect(self.page.get_by_role("button", name="Send")).to_be_enabled()
        await self.page.keyboard.press("Enter")

    async def press(self, target: Locator) -> None:
        """Press a button or a summary while the conversation grows.

        The helper uses the keyboard: between press and release, a mouse can be over two different
        elements.
        """
        await target.press("Enter")

    @property
    def messages(self) -> Locator:
        return self.page.get_by_role("log")

    def question(self, message: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("region", name=message)

    async def screen(self, name: str) -> None:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png")

    async def until(self, expression: str) -> None:
        await self.page.wait_for_function(expression)

    async def serious(self) -> list[tuple[str, list[str]]]:
        """Return the serious findings of an accessibility audit; the context must bypass the page's
        policy.
        """
        if not await self.page.evaluate("'axe' in window"):
            await self.page.add_script_tag(path=AXE)
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
    """Yield a page at ``address``, and check that it reports no faults."""
    page = await browser.new_page(**options)
    opened = Tab(page)
    await page.goto(address)
    yield opened
    await page.unroute_all(behavior="ignoreErrors")  # requests that a test answers itself
    await page.close()
    assert opened.faults == [], opened.faults


WIDE: Final[Look] = {"color_scheme": "light", "viewport": {"width": 1200, "height": 800}}
NARROW: Final[Look] = {"color_scheme": "dark", "viewport": {"width": 375, "height": 800}}
LOOKS = pytest.mark.parametrize("look", [WIDE, NARROW], ids=["light-wide", "dark-narrow"])
"""The looks of a page that are audited: every colour and every shape once, not each with each."""

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
"""Nothing of the page is beside its window."""


@asynccontextmanager
async def audited(
    browser: Browser, address: str, look: Look
) -> AsyncGenerator[tuple[Tab, Callable[[str], Awaitable[None]]]]:
    """Yield a page of this look, and a function that audits its present state and takes a picture."""
    shape = "narrow" if look == NARROW else "wide"
    context = await browser.new_context(**look, bypass_csp=True, reduced_motion="reduce")
    async with tab(context, address) as opened:

        async def audit(state: str) -> None:
            await opened.until(FITS)
            assert await opened.serious() == [], state
            await opened.screen(f"{state}-{look['color_scheme']}-{shape}")

        yield opened, audit
