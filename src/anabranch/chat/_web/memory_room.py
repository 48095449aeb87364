"""The routes of the page that lists, searches, shows and deletes the caller's memories."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.chat._web.access import caller_of
from anabranch.chat._web.requests import json_response
from anabranch.memory import (
    Banks,
    LevelError,
    Memory,
    ReasoningBank,
    UnknownMemoryError,
    bank_of,
    shown,
)

LISTED = 50
LONGEST_QUERY = 1_000


class MemoryRoom:
    def __init__(self, banks: Banks) -> None:
        self._banks = banks
        self.routes: list[Route] = [
            Route("/memories", self.memories, methods=["GET"]),
            Route("/memories/{id}", self.memory, methods=["GET"]),
            Route("/memories/{id}", self.forget, methods=["DELETE"]),
        ]

    async def memories(self, request: Request) -> Response:
        bank, query = self._bank(request), request.query_params.get("query", "").strip()
        if len(query) > LONGEST_QUERY:
            raise HTTPException(422, f"A query has at most {LONGEST_QUERY} characters.")
        found = await (bank.search(query, limit=LISTED) if query else bank.newest(LISTED))
        return json_response([shown(memory).model_dump() for memory in found])

    async def memory(self, request: Request) -> Response:
        found = await self._find(request)
        whole = found.model_dump(mode="json", exclude={"scope"})
        writable = found.scope in self._bank(request).writable
        return json_response({**whole, **shown(found).model_dump(), "writable": writable})

    async def forget(self, request: Request) -> Response:
        found = await self._find(request)
        try:
            await self._bank(request).forget(found.id)
        except LevelError as error:
            raise HTTPException(403, str(error)) from None
        return json_response({"forgotten": found.id})

    def _bank(self, request: Request) -> ReasoningBank:
        return bank_of(self._banks, caller_of(request).principal)

    async def _find(self, request: Request) -> Memory:
        name = request.path_params["id"]
        try:
            return await self._bank(request).find(name)
        except UnknownMemoryError:
            raise HTTPException(404, f"Unknown memory {name!r}.") from None
