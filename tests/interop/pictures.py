"""The pictures of README.md and docs/: the page in a browser, light and dark, wide and narrow (``make pictures``)."""

import asyncio
import re
import sys
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, Page, expect

from anabranch.chat import make_chat_app
from anabranch.memory import Draft, ReasoningBank
from anabranch.stores import open_memory_store
from examples.refund import refund
from tests.agents.memory import MemoryTrees
from tests.chat.web import model, serving
from tests.cli.demo import demo
from tests.cli.developing import developing
from tests.interop.browsing import Tab, launched
from tests.interop.page_scenes import scenes

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
WIDE, NARROW = {"width": 1180, "height": 760}, {"width": 390, "height": 760}
TALL = {"width": 1180, "height": 1000}

EXAMPLES = Path(__file__).parents[2] / "examples"

Scene = Callable[[Tab], Awaitable[object]]

LEARNED = (
    (
        "Builds that are slow after a merge",
        "The cache is keyed by the lock file",
        "Look at the lock file before the code: if it changed, the first build fills the cache.",
    ),
    (
        "Flights of two passengers",
        "A search asks for seats that are together",
        "Ask for the number of seats before the search: the cheapest single seats are never together.",
    ),
    (
        "Tests that fail at night only",
        "Two of them shared a date",
        "Pass a clock to the code under test, and move it by hand.",
    ),
)


@asynccontextmanager
async def game_served() -> AsyncGenerator[str]:
    """Serve the card game as ``anabranch web`` does."""
    async with serving(demo()) as address:
        yield f"{address}/"


@asynccontextmanager
async def refund_served() -> AsyncGenerator[str]:
    """Serve the README's tool as ``anabranch web`` does."""
    async with serving(demo(refund)) as address:
        yield f"{address}/"


@asynccontextmanager
async def developed() -> AsyncGenerator[str]:
    """Serve a tool that asks the user and a model, as ``anabranch dev`` does."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "tools.py").write_text((EXAMPLES / "wizard.py").read_text("utf-8"))
        with developing(Path(folder)) as address:
            yield address


@asynccontextmanager
async def remembered() -> AsyncGenerator[str]:
    """Serve a page with a memory of three things."""
    store = open_memory_store("memory:")
    bank = ReasoningBank(store)
    for title, description, content in LEARNED:
        await bank.record(Draft(title=title, description=description, content=content))
    app = make_chat_app(MemoryTrees(), model(), memory=lambda _: bank)
    async with serving(app) as address:
        yield f"{address}/?room=memory"
    await store.close()


async def approve(opened: Tab) -> None:
    """Bring the page to the question of the README's tool."""
    await opened.say("/refund order=A1 amount=20")
    await expect(opened.question(re.compile("Refund 20.00"))).to_be_visible()


async def play(opened: Tab) -> None:
    """Bring the page to the open question of the card game."""
    await opened.say("Let us play!")
    cards = opened.page.get_by_role("button", name=re.compile("^Pick "))
    await cards.nth(2).hover()


async def fork(opened: Tab) -> None:
    """Bring the page to two branches and their verdict, on a conversation with two versions."""
    await opened.say("thanks")
    await expect(opened.messages.get_by_text("You are welcome")).to_be_visible()
    await opened.page.get_by_role("button", name="Edit").click()
    await opened.say("Think of two ways to get there")
    await expect(opened.messages.get_by_text("The judge prefers")).to_be_visible()
    await opened.page.get_by_role("textbox", name="Message").blur()


async def ask(opened: Tab) -> None:
    """Bring the page to a form, with a value that was refused."""
    await opened.say("Book me a flight")
    form = opened.question(re.compile("How many"))
    await form.get_by_label("Day").fill("2026-12-01")
    await form.get_by_label("Seats", exact=True).fill("12")
    await form.get_by_role("button", name="Accept").click()


async def develop(opened: Tab) -> None:
    """Call the tool by its form, and fill in the form of its question."""
    await opened.page.get_by_role("button", name="/plan_trip").click()
    await opened.page.get_by_role("button", name="Call").click()
    question = opened.question(re.compile("Where do you want"))
    await question.get_by_role("textbox").fill("Vienna")


async def recall(opened: Tab) -> None:
    await opened.page.get_by_role("button", name="Builds that are slow").click()
    await expect(opened.page.get_by_text("Look at the lock file")).to_be_visible()


PICTURES_OF: list[tuple[str, Any, Scene, str, dict[str, int]]] = [
    ("refund-light", refund_served, approve, "light", {"width": 900, "height": 520}),
    ("game-light", game_served, play, "light", WIDE),
    ("game-dark-narrow", game_served, play, "dark", NARROW),
    ("branches-dark", scenes, fork, "dark", TALL),
    ("form-light-narrow", scenes, ask, "light", NARROW),
    ("dev-light", developed, develop, "light", WIDE),
    ("memory-dark", remembered, recall, "dark", {"width": 1180, "height": 620}),
]


async def take(browser: Browser, name: str, served: Any, scene: Scene, **look: Any) -> None:
    async with served() as address:
        page: Page = await browser.new_page(**look)
        tab = Tab(page)
        await page.goto(address)
        await scene(tab)
        await page.evaluate(
            "Promise.allSettled(document.getAnimations().map((each) => each.effect.getTiming()"
            ".iterations === 1 ? each.finished : 0))"
        )
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / f"{name}.png").write_bytes(smaller(await page.screenshot()))
        await page.close()


def smaller(png: bytes) -> bytes:
    """Return a picture with its data compressed as far as zlib does."""
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at < len(png):
        size = int.from_bytes(png[at : at + 4])
        chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += size + 12
    data = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    ends = {b"IHDR": chunks[0][1], b"IDAT": zlib.compress(data, 9), b"IEND": b""}
    return png[:8] + b"".join(
        len(body).to_bytes(4) + kind + body + zlib.crc32(kind + body).to_bytes(4)
        for kind, body in ends.items()
    )


async def main() -> None:
    wanted = sys.argv[1:]
    async with launched() as browser:
        for name, served, scene, scheme, size in PICTURES_OF:
            if wanted and name not in wanted:
                continue
            await take(browser, name, served, scene, color_scheme=scheme, viewport=size)


if __name__ == "__main__":
    asyncio.run(main())
