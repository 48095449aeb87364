"""The memory of the caller: its memories are listed, searched, shown with where they come from, and forgotten.

GET    /memories         the latest, or with query= the most relevant
GET    /memories/{id}    one, with all that is stored of it
DELETE /memories/{id}    forget it, for good
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anabranch._encodable import encodable
from anabranch.chat._web.callers import caller_of
from anabranch.memory import Memory, ReasoningBank, UnknownMemoryError, shown

__all__ = ["MemoryOf", "MemoryRoom"]

MemoryOf: TypeAlias = Callable[[str | None], ReasoningBank]
"""Returns the memory of a principal, or of everyone where callers are not distinguished."""

LISTED = 50
LONGEST_QUERY = 1_000


class MemoryRoom:
    """The routes over memories.

    Args:
        memory_of: returns the memory that a caller sees, which finds nothing but what is in its scopes.
    """

    def __init__(self, memory_of: MemoryOf) -> None:
        self._memory_of = memory_of
        self.routes: list[Route] = [
            Route("/memories", self.memories, methods=["GET"]),
            Route("/memories/{id}", self.memory, methods=["GET"]),
            Route("/memories/{id}", self.forget, methods=["DELETE"]),
        ]

    async def memories(self, request: Request) -> Response:
        """Return the latest memories, or the most relevant to a query."""
        bank, query = self._bank(request), request.query_params.get("query", "").strip()
        if len(query) > LONGEST_QUERY:
            raise HTTPException(422, f"A query has at most {LONGEST_QUERY} characters.")
        found = await (bank.search(query, limit=LISTED) if query else bank.newest(LISTED))
        return _json([shown(memory).model_dump() for memory in found])

    async def memory(self, request: Request) -> Response:
        """Return a memory, with where it comes from."""
        found = await self._find(request)
        whole = found.model_dump(mode="json", exclude={"scope"})
        return _json({**whole, **shown(found).model_dump()})

    async def forget(self, request: Request) -> Response:
        """Delete a memory."""
        found = await self._find(request)
        await self._bank(request).forget(found.id)
        return _json({"forgotten": found.id})

    def _bank(self, request: Request) -> ReasoningBank:
        return self._memory_of(caller_of(request).principal)

    async def _find(self, request: Request) -> Memory:
        name = request.path_params["id"]
        try:
            return await self._bank(request).find(name)
        except UnknownMemoryError:
            raise HTTPException(404, f"There is no memory {name!r}.") from None


def _json(content: object) -> JSONResponse:
    return JSONResponse(encodable(content), headers={"Cache-Control": "no-store"})
