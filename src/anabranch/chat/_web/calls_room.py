"""The recorded calls of the application's store, as far as its author lets a browser see them.

GET  /rooms                    the names of the rooms that the page has here, beside the chat
GET  /calls                    the calls, the last begun first: tool=, status=, after=, limit=
GET  /calls/{id}               one call: its rounds, its steps, what it waits for
POST /calls/{id}/answers       answer one of its questions differently, on another line

A recorded call has values that only the server may know: what steps returned, the data of a handoff. So
there is no such room by default. An *outline* has what happened, and no value; *values* has everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from anabranch._durable.policy import Durability
from anabranch._durable.store import CallRecord
from anabranch._encodable import encodable
from anabranch._recorded.finding import NoSuchCallError, find_call
from anabranch._recorded.outline import outline
from anabranch._recorded.reading import listed, read_call
from anabranch._recorded.shapes import RecordedCall
from anabranch.agents import Agent, CalledTool
from anabranch.chat._web.another_line import NotAnswerableError, answer_differently
from anabranch.chat._web.requests import CallAnswerBody, read_body
from anabranch.tool import Tool

__all__ = ["CallsRoom", "RecordedCalls", "rooms_route"]

RecordedCalls: TypeAlias = Literal["outline", "values"]
"""What a browser is shown of recorded calls."""

PAGE = 50
LARGEST_PAGE = 200
LARGEST_VALUE = 20_000
"""Characters of a value, as JSON, that are sent whole."""

_STATUSES = ("open", "done", "failed", "expired")
_OWN = "node:"


class CallsRoom:
    """The routes over recorded calls.

    Args:
        agent: has the tools and the conversations.
        policy: has the store of calls.
        shows: an ``outline``, or ``values`` as well.
    """

    def __init__(self, agent: Agent, policy: Durability, shows: RecordedCalls) -> None:
        if shows not in get_args(RecordedCalls):
            raise ValueError(f"recorded_calls is {shows!r}; it is 'outline', 'values' or None.")
        self._agent = agent
        self._policy = policy
        self._shows = shows
        self.routes: list[Route] = [
            Route("/calls", self.calls, methods=["GET"]),
            Route("/calls/{id}", self.call, methods=["GET"]),
            Route("/calls/{id}/answers", self.answer, methods=["POST"]),
        ]

    async def calls(self, request: Request) -> Response:
        """Return a page of calls."""
        query = request.query_params
        status, limit = query.get("status"), query.get("limit", str(PAGE))
        if status is not None and status not in _STATUSES:
            raise HTTPException(422, f"A status is one of {', '.join(_STATUSES)}.")
        if not (limit.isdecimal() and 1 <= int(limit[:9]) <= LARGEST_PAGE):
            raise HTTPException(422, f"limit is a number from 1 to {LARGEST_PAGE}.")
        after = await self._find(query["after"]) if "after" in query else None
        found = await self._policy.store.calls(
            int(limit), tool=query.get("tool"), status=status, after=after
        )
        hidden = {"principal"} if self._shows == "outline" else set[str]()
        shown = [listed(each).model_dump(mode="json", exclude=hidden) for each in found]
        return _json({"shows": self._shows, "calls": shown})

    async def call(self, request: Request) -> Response:
        """Return one call."""
        record = await self._find(request.path_params["id"])
        now = self._agent.dependencies.clock.now()
        call = await read_call(self._policy.store, record, now)
        if self._shows == "outline":
            call = outline(call)
        return _json(
            {
                **_bounded(call),
                "shows": self._shows,
                "thread": await self._thread_of(record),
                "answerable": self._shows == "values" and self._tool_of(record) is not None,
            }
        )

    async def answer(self, request: Request) -> Response:
        """Answer a question differently; what the tool does from there on is done again."""
        if self._shows != "values":
            raise HTTPException(403, "Questions are not shown here, so none is answered here.")
        record = await self._find(request.path_params["id"])
        body = await read_body(request, CallAnswerBody)
        if await self._thread_of(record) is not None:
            raise HTTPException(409, "The call is part of a conversation: answer it there.")
        tool = self._tool_of(record)
        if tool is None:
            raise HTTPException(404, f"This application does not have the tool {record.tool!r}.")
        try:
            line = await answer_differently(
                self._agent.dependencies, self._policy, record, tool, body.step_id, body.reply()
            )
        except NotAnswerableError as refusal:
            shown = {"error": str(refusal), "errors": [e.model_dump() for e in refusal.errors]}
            return _json(shown, 422 if refusal.errors else 409)
        return _json({"id": line})

    async def _find(self, name: str) -> CallRecord:
        try:
            return await find_call(self._policy.store, name)
        except NoSuchCallError as error:
            raise HTTPException(404, str(error)) from None

    async def _thread_of(self, record: CallRecord) -> str | None:
        """Return the conversation that the call is part of, if this application has it."""
        if not record.principal.startswith(_OWN):
            return None
        caller = await self._agent.store.node(record.principal.removeprefix(_OWN))
        return None if caller is None else caller.thread_id

    def _tool_of(self, record: CallRecord) -> Tool[Any] | None:
        tool = self._agent.tools.get(record.tool)
        return tool.tool if isinstance(tool, CalledTool) else None


def rooms_route() -> Route:
    """Return the route that names the rooms of the page that this application has."""

    async def serve(request: Request) -> Response:
        rooms: list[str] = request.app.state.rooms
        return _json(rooms)

    return Route("/rooms", serve, methods=["GET"])


def _bounded(call: RecordedCall) -> dict[str, Any]:
    """Return a call as JSON, in which large values are cut."""
    shown = call.model_dump(mode="json")
    for each in (shown, *shown["steps"]):
        for name in ("arguments", "value", "error"):
            if name in each:
                each[name] = _cut(each[name])
    return shown


def _cut(value: JsonValue) -> JsonValue:
    text = json.dumps(value)
    if len(text) <= LARGEST_VALUE:
        return value
    return f"{text[:LARGEST_VALUE]}… ({len(text)} characters)"


def _json(content: Mapping[str, object] | list[str], status: int = 200) -> JSONResponse:
    return JSONResponse(encodable(content), status, {"Cache-Control": "no-store"})
