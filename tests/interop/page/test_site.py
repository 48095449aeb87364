"""The documentation site in a browser: its search works, and nothing leaves the host."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.async_api import Browser, expect

from tests.docs.site import build, stage
from tests.interop.browsing import tab


class Silent(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    stage(folder)
    done = build(folder)
    assert done.returncode == 0, done.stderr
    serve = partial(Silent, directory=str(folder / "build" / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


async def test_an_error_is_found_by_its_message_and_nothing_leaves_the_host(
    browser: Browser, site: str
) -> None:
    async with tab(browser, site, viewport={"width": 1180, "height": 800}) as opened:
        page = opened.page
        search = page.get_by_role("combobox", name="Search", include_hidden=True)
        await expect(search).to_be_attached()  # the page creates it, and listens from then on
        await page.keyboard.press("/")
        await expect(search).to_be_focused()
        await page.keyboard.type("Nest fewer branches")
        await expect(page.get_by_text("would exceed max_depth").first).to_be_visible()
        await opened.screen("site-search")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/docs/troubleshooting.html*")
