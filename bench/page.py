"""The chat's page: its compressed size, and the time until a user can type.

The size is the size of everything that the page loads, as sent. The time begins with the navigation, in a
new context of the system's Chromium for each load, so that no load meets a cache, and ends when the
message box appears.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
from statistics import median

from playwright.async_api import async_playwright

from anabranch.chat._web.page_files import PAGE
from bench.measure import Row
from bench.streaming import served_ours

NAME = "page"
LOADS = 10

WATCH = """
new MutationObserver((_, observer) => {
  const box = document.querySelector("textarea, [role=textbox]");
  if (box && !box.disabled) { window.interactive = performance.now(); observer.disconnect(); }
}).observe(document, { childList: true, subtree: true, attributes: true });
"""


async def load_times() -> list[float]:
    """Return the milliseconds until the page can be used."""
    program = shutil.which("chromium")
    async with served_ours() as port, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        found: list[float] = []
        for _ in range(LOADS + 1):
            context = await browser.new_context()
            page = await context.new_page()
            await page.add_init_script(WATCH)
            await page.goto(f"http://127.0.0.1:{port}/")
            await page.get_by_role("textbox", name="Message").wait_for()
            found.append(float(await page.evaluate("window.interactive")))
            await context.close()
        await browser.close()
    return found[1:]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    files = [each for each in PAGE.rglob("*") if each.suffix in {".html", ".mjs", ".css", ".svg"}]
    size = sum(len(gzip.compress(each.read_bytes())) for each in files)
    return [
        Row(NAME, "the page, compressed", size / 1024, "KiB", 72),
        Row(NAME, "until one can type, median", median(asyncio.run(load_times())), "ms", 300),
    ]
