"""The files of the page as they are served: compressed, with their hashes, small in all, its modules as one."""

from __future__ import annotations

import gzip
import re

import pytest

from anabranch.chat._web.page_files import page_files
from tests.chat.web import browsing

KIB = 2**10


async def test_a_file_is_compressed_and_sent_once() -> None:
    async with browsing() as client:
        first = await client.get("/app.mjs", headers={"Accept-Encoding": "gzip"})
        assert first.headers["content-encoding"] == "gzip"
        assert first.headers["content-type"].startswith("text/javascript")
        assert first.headers["vary"] == "Accept-Encoding"
        again = await client.get("/app.mjs", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        other = await client.get("/style.css", headers={"If-None-Match": first.headers["etag"]})
        assert other.status_code == 200


async def test_a_client_without_compression_is_sent_the_file_itself() -> None:
    async with browsing() as client:
        plain = await client.get("/app.mjs", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == page_files()["app.mjs"].body
        assert gzip.decompress(page_files()["app.mjs"].compressed) == plain.content


@pytest.mark.parametrize("path", ["/nothing.mjs", "/chat.mjs", "/vendor", "/../conversation.py"])
async def test_a_path_that_is_no_file_of_the_page_is_not_found(path: str) -> None:
    async with browsing() as client:
        response = await client.get(path)
        assert response.status_code == 404
        assert response.json()["error"].endswith(".")


def test_the_page_is_small() -> None:
    sizes = {
        name: len(file.compressed)
        for name, file in page_files().items()
        if not name.endswith((".txt", ".json"))  # for readers of the sources
    }
    assert sum(sizes.values()) <= 62 * KIB, sizes


def test_one_module_is_loaded() -> None:
    index = page_files()["index.html"].body.decode()
    assert re.findall(r'(?:href|src)="([\w/]+\.mjs)"', index) == ["app.mjs"]
    assert [name for name in page_files() if name.endswith(".mjs")] == ["app.mjs"]
