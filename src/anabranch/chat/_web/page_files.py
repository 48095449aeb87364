"""The routes of the page's files, which browsers cache for ever under a path with their digest."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PAGE: Final = Path(__file__).with_name("page")
JAVASCRIPT: Final = "text/javascript"  # not every system knows it for .mjs
IMMUTABLE: Final = {"Cache-Control": "private, max-age=31536000, immutable"}

BASE: Final = "page/digest"
"""Stands for the path of the files in the document."""

PRELOADS: Final = "    <!-- modulepreload -->\n"
"""Stands for the links to all modules: a browser requests them before it has read the first."""


@cache
def base() -> str:
    digest = hashlib.sha256()
    for file in sorted(each for each in PAGE.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(PAGE).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return f"page/{digest.hexdigest()[:32]}"


@cache
def document() -> str:
    modules = sorted(each.relative_to(PAGE).as_posix() for each in PAGE.rglob("*.mjs"))
    links = [f'    <link rel="modulepreload" href="{BASE}/{each}">\n' for each in modules]
    text = (PAGE / "index.html").read_text(encoding="utf-8")
    return text.replace(PRELOADS, "".join(links)).replace(BASE, base())


class _Files(StaticFiles):
    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(IMMUTABLE)
        if str(full_path).endswith(".mjs"):
            response.headers["Content-Type"] = f"{JAVASCRIPT}; charset=utf-8"
        return response


def page_routes() -> list[BaseRoute]:
    """Return the routes of the document and the files; other routes compress nothing."""
    compressed = [Middleware(GZipMiddleware)]

    async def serve(request: Request) -> Response:
        del request
        return HTMLResponse(document(), headers={"Cache-Control": "no-cache"})

    return [
        Route("/", serve, methods=["GET"], middleware=compressed),
        Mount(f"/{base()}", _Files(directory=PAGE), middleware=compressed),
    ]
