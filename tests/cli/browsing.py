"""A user of the full-screen browser, who waits for expected content."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from textual.pilot import Pilot
from textual.widgets import Static

from anabranch.cli._browser import Browser
from tests.patience import PATIENCE


def details(app: Browser) -> str:
    return str(app.query_one("#details", Static).content)


@asynccontextmanager
async def browsing(app: Browser) -> AsyncGenerator[Pilot[Any]]:
    """Yield a user at the screen, once the screen is drawn and the cursor is at the head."""
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(app.screen.query("#details")) and bool(details(app)))
        yield pilot


async def until(pilot: Pilot[Any], seen: Callable[[], bool]) -> None:
    """Let the screen work until `seen` is true: on a busy machine a single pause may be too short."""
    with anyio.fail_after(PATIENCE):
        while not seen():
            await pilot.pause()
