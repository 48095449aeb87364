"""A person at the full-screen browser, who waits for what they shall see."""

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
    """A person at the screen: it is drawn, and the cursor is at the head."""
    async with app.run_test() as pilot:
        await until(pilot, lambda: bool(app.screen.query("#details")) and bool(details(app)))
        yield pilot


async def until(pilot: Pilot[Any], seen: Callable[[], bool]) -> None:
    """Let the screen work until `seen` is true: on a busy machine a pause may end before."""
    with anyio.fail_after(PATIENCE):
        while not seen():
            await pilot.pause()
