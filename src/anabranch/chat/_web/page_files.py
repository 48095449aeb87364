"""The files of the page, compressed once per process, and sent with their hashes.

A browser asks each time whether a file is still the same, so that an upgrade of the server needs no
reload by hand; if it is, no file is sent.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.chat._web.page_module import assembled

ENTRY = "app.mjs"
TYPES = {".mjs": "text/javascript", ".svg": "image/svg+xml"}  # not every system knows them


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file, as it is and compressed."""

    body: bytes
    compressed: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> PageFile:
        """Return the file ``name`` with the content ``body``."""
        suffix = name[name.rfind(".") :]
        media_type = TYPES.get(suffix) or mimetypes.guess_type(name)[0] or "text/plain"
        etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
        return cls(body, gzip.compress(body, 9, mtime=0), media_type, etag)

    def response(self, request: Request) -> Response:
        """Return the answer to a request for it."""
        headers = {"ETag": self.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.body, 200, headers, self.media_type)
        headers["Content-Encoding"] = "gzip"
        return Response(self.compressed, 200, headers, self.media_type)


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the page by their paths; one module has all that it loads."""
    found: dict[str, bytes] = {}
    folders: list[tuple[str, Traversable]] = [("", files("anabranch.chat._web") / "page")]
    for prefix, folder in folders:
        for each in folder.iterdir():
            if each.is_dir():
                folders.append((f"{prefix}{each.name}/", each))
            else:
                found[prefix + each.name] = each.read_bytes()
    modules = {path: found.pop(path).decode() for path in [*found] if path.endswith(".mjs")}
    found[ENTRY] = assembled(modules, ENTRY).encode()
    return {path: PageFile.of(path, body) for path, body in found.items()}


def page_route() -> Route:
    """Return the route of everything that is not the application's own."""
    known = page_files()

    async def serve(request: Request) -> Response:  # a plain function would wait for a thread
        path = request.path_params["path"]
        file = known.get(path or "index.html")
        if file is None:
            raise HTTPException(404, f"There is no page {path!r}.")
        return file.response(request)

    return Route("/{path:path}", serve, methods=["GET"])
