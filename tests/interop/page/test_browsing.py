"""The faults of a page that fail these tests, and the ones that do not."""

from playwright.async_api import Browser, Route

from tests.interop.browsing import Tab, tab
from tests.interop.page_scenes import scenes

THREADS = "**/threads"


async def hold(route: Route) -> None:
    """Never answer."""


async def reset(route: Route) -> None:
    await route.abort("connectionreset")


async def test_a_request_cancelled_by_leaving_its_page_is_no_fault(browser: Browser) -> None:
    async with scenes() as address, tab(browser, address) as opened:
        await opened.page.route(THREADS, hold)
        async with opened.page.expect_request(THREADS):
            await opened.page.reload()
        async with opened.page.expect_event("requestfailed"):
            await opened.page.reload()


async def test_a_request_that_fails_is_a_fault(browser: Browser) -> None:
    async with scenes() as address:
        opened = Tab(await browser.new_page())
        await opened.page.route(THREADS, reset)
        async with opened.page.expect_event("requestfailed"):
            await opened.page.goto(address)
        await opened.page.close()
    assert f"failed: {address}threads: net::ERR_CONNECTION_RESET" in opened.faults
