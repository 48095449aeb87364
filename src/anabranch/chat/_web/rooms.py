"""The routes of the page's optional rooms: recorded calls, and the caller's memories.

A recorded call has values that only the server may know: results of steps, the data of a handoff.
Therefore the calls room is off by default, and shows as much detail as the author allows. An
*outline* has the steps without values.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from pydantic import JsonValue
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch._durable import (
    NAMED,
    CallRecord,
    Durability,
    NoSuchCallError,
    RecordedCall,
    find_call,
    listed,
    outline,
    read_call,
)
from anabranch._text import json_line
from anabranch.agents import CalledTool
from anabranch.chat._web.answers import AnswerRefusedError, answer_differently
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.rate_limits import caller_of, full
from anabranch.chat._web.requests import CallAnswerBody, json_response, read_body
from anabranch.memory import (
    Banks,
    LevelError,
    Memory,
    ReasoningBank,
    UnknownMemoryError,
    bank_of,
    shown,
)
from anabranch.tool import Tool

RecordedCalls: TypeAlias = Literal["outline", "values"]
"""The detail in which a browser sees recorded calls."""

PAGE = 50
LARGEST_PAGE = 200
LARGEST_VALUE = 20_000
"""The most characters of a value, as JSON, that a browser receives whole."""

MEMORIES_LISTED = 50
LONGEST_QUERY = 1_000


class CallsRoom:
    def __init__(
        self, conversations: Conversations, policy: Durability, shows: RecordedCalls
    ) -> None:
        if shows not in get_args(RecordedCalls):
            raise ValueError(f"recorded_calls is {shows!r}; it is 'outline', 'values' or None.")
        self._conversations = conversations
        self._agent = conversations.agent
        self._policy = policy
        self._shows = shows
        self.routes: list[Route] = [
            Route("/calls", self.calls, methods=["GET"]),
            Route("/calls/{id}", self.call, methods=["GET"]),
            Route("/calls/{id}/answers", self.answer, methods=["POST"]),
        ]

    async def calls(self, request: Request) -> Response:
        query = request.query_params
        status, limit = query.get("status"), query.get("limit", str(PAGE))
        if status is not None and status not in NAMED:
            raise HTTPException(422, f"A status is one of {', '.join(NAMED)}.")
        if not (limit.isdecimal() and 1 <= int(limit[:9]) <= LARGEST_PAGE):
            raise HTTPException(422, f"limit is a number from 1 to {LARGEST_PAGE}.")
        after = await self._find(query["after"]) if "after" in query else None
        found = await self._policy.store.calls(
            int(limit),
            tool=query.get("tool"),
            states=None if status is None else NAMED[status],
            after=after,
        )
        hidden = {"principal"} if self._shows == "outline" else set[str]()
        shown = [listed(each).model_dump(mode="json", exclude=hidden) for each in found]
        return json_response({"shows": self._shows, "calls": shown})

    async def call(self, request: Request) -> Response:
        record = await self._find(request.path_params["id"])
        now = self._agent.dependencies.clock.now()
        call = await read_call(self._policy.store, record, now)
        if self._shows == "outline":
            call = outline(call)
        conversation, is_theirs = await self._conversation(request, record)
        can_answer = not is_theirs and self._tool_of(record) is not None
        return json_response(
            {
                **_bounded(call),
                "shows": self._shows,
                "thread": None if conversation is None else conversation.log.shown_id,
                "answerable": self._shows == "values" and can_answer,
            }
        )

    async def answer(self, request: Request) -> Response:
        if self._shows != "values":
            raise HTTPException(403, "This application shows no questions, so it takes no answers.")
        record = await self._find(request.path_params["id"])
        body = await read_body(request, CallAnswerBody)
        caller_of(request).check_run()
        conversation, is_theirs = await self._conversation(request, record)
        if is_theirs:
            raise HTTPException(404, "The call belongs to another user's conversation.")
        tool = self._tool_of(record)
        if tool is None:
            raise HTTPException(404, f"This application has no tool {record.tool!r}.")
        if conversation is not None:
            return json_response(await self._answer_in(conversation, record, body))
        line = await answer_differently(
            self._agent.dependencies, self._policy, record, tool, body.step_id, body.reply()
        )
        return json_response({"id": line})

    async def _answer_in(
        self, conversation: Conversation, record: CallRecord, body: CallAnswerBody
    ) -> Mapping[str, str]:
        thread_id, step_id = conversation.thread_id, body.step_id
        asked = await self._conversations.questions.asked_by(thread_id, record.call_id, step_id)
        if asked is None:
            raise AnswerRefusedError("unknown", f"The call has no question {step_id!r}.")
        if seconds := await self._conversations.backlog.add():
            raise full(seconds)
        run_id = f"run_{secrets.token_hex(8)}"
        await conversation.answer_differently(asked.id, body.reply(), run_id)
        return {"thread": conversation.log.shown_id, "run_id": run_id}

    async def _find(self, name: str) -> CallRecord:
        try:
            return await find_call(self._policy.store, name)
        except NoSuchCallError as error:
            raise HTTPException(404, str(error)) from None

    async def _conversation(
        self, request: Request, record: CallRecord
    ) -> tuple[Conversation | None, bool]:
        """Return the call's conversation, and whether another user has the call."""
        if not record.thread:
            return None, False
        principal = caller_of(request).principal
        found = await self._conversations.find(record.thread, principal)
        return found, record.principal != (principal or "")

    def _tool_of(self, record: CallRecord) -> Tool[Any] | None:
        tool = self._agent.tools.get(record.tool)
        return tool.tool if isinstance(tool, CalledTool) else None


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
        found = await (
            bank.search(query, limit=MEMORIES_LISTED) if query else bank.newest(MEMORIES_LISTED)
        )
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


def rooms_route() -> Route:
    async def serve(request: Request) -> Response:
        rooms: list[str] = request.app.state.rooms
        return json_response(rooms)

    return Route("/rooms", serve, methods=["GET"])


def _bounded(call: RecordedCall) -> dict[str, Any]:
    shown = call.model_dump(mode="json")
    for each in (shown, *shown["steps"]):
        for name in ("arguments", "value", "error"):
            if name in each:
                each[name] = _cut(each[name])
    return shown


def _cut(value: JsonValue) -> JsonValue:
    text = json_line(value)
    if len(text) <= LARGEST_VALUE:
        return value
    return f"{text[:LARGEST_VALUE]}… ({len(text)} characters)"
