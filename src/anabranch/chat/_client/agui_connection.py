"""Sends requests to a chat's server, and receives the events of a run until the run ends.

The client opens a broken connection again, and continues after the last event. Before the first
event, it sends the run again: the server takes an equal id as the same run.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
from ag_ui.core import (
    PROTOCOL_VERSION,
    CustomEvent,
    Event,
    EventType,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    UserMessage,
)
from pydantic import BaseModel, TypeAdapter, ValidationError

from anabranch.chat._client.chat_reply import ChatClientError, check_response, read_text

PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Seconds before each attempt to connect again."""

MISSED = "anabranch.missed"

MAX_EVENT = 64 * 2**20
"""The most bytes of an event; a node of the tree may contain pictures."""

_EVENT: TypeAdapter[Event] = TypeAdapter(Event)
_TYPES = {each.value for each in EventType}


class ThreadState(BaseModel):
    """The part of the response to ``GET /threads/{id}/tree`` that a client reads."""

    nodes: list[dict[str, Any]]
    refs: dict[str, str] = {}
    position: str = ""
    running: bool = False


class _Typed(BaseModel):
    type: str


def run_input(
    thread_id: str,
    *,
    messages: Sequence[UserMessage] = (),
    resume: list[ResumeEntry] | None = None,
    at: str | None = None,
) -> RunAgentInput:
    return RunAgentInput(
        thread_id=thread_id,
        run_id=new_id("run"),
        protocol_version=PROTOCOL_VERSION,
        state={},
        messages=list(messages),
        tools=[],
        context=[],
        forwarded_props={} if at is None else {"headNodeId": at},
        resume=resume,
    )


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(8)}"


def path_of(thread_id: str, what: str) -> str:
    return f"threads/{quote(thread_id, safe='')}/{what}"


class AguiConnection:
    """Sends requests to one chat server, and reconnects after each of ``pauses`` seconds."""

    def __init__(self, http: httpx2.AsyncClient, pauses: Sequence[float] = PAUSES) -> None:
        self._http = http
        self._pauses = pauses

    async def request(
        self, method: str, path: str, json: Mapping[str, object] | None = None
    ) -> bytes:
        try:
            return await self._answer(method, path, json)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _answer(
        self, method: str, path: str, json: Mapping[str, object] | None = None
    ) -> bytes:
        response = await self._http.request(method, path, json=json)
        await check_response(response)
        return response.content

    async def state(self, thread_id: str) -> ThreadState:
        return read_text(ThreadState, await self.request("GET", path_of(thread_id, "tree")))

    async def run(self, wanted: RunAgentInput, *, after: str = "") -> AsyncGenerator[Event]:
        """Yield a run's events; with ``after``, follow the run in progress from that event.

        A custom event ``anabranch.missed`` marks a gap that the server cannot fill. If a new
        connection finds no run in progress, the last event may be any event.
        """
        seen, pauses, sent = after, iter(self._pauses), False
        while True:
            try:
                end = await self._idle_since(wanted.thread_id) if seen else None
                if end is not None and end == seen:
                    return
                async with self._events(wanted, seen) as source:
                    await check_response(source.response)
                    async for sent_event in source:
                        sent, seen, pauses = True, sent_event.id, iter(self._pauses)
                        event = _event(sent_event.data)
                        if event is None:
                            continue
                        yield event
                        if seen == end or await self._is_end(event, wanted, is_any=bool(after)):
                            return
                problem: Exception = EOFError("the server ended the connection")
            except httpx2.TransportError as error:
                problem = error
            pause = next(pauses, None)
            never_sent = isinstance(problem, httpx2.ConnectError) and not sent
            if pause is None or never_sent:
                raise self._unreachable(problem) from problem
            sent = True
            await anyio.sleep(pause)

    async def _is_end(self, event: Event, wanted: RunAgentInput, *, is_any: bool) -> bool:
        match event:
            case RunFinishedEvent():
                return is_any or event.run_id == wanted.run_id
            case CustomEvent() if event.name == MISSED:
                return await self._idle_since(wanted.thread_id) is not None
            case _:
                return isinstance(event, RunErrorEvent)

    async def _idle_since(self, thread_id: str) -> str | None:
        """Return the position of a thread's last event, ``None`` while a turn runs."""
        state = read_text(ThreadState, await self._answer("GET", path_of(thread_id, "tree")))
        return None if state.running else state.position

    def _events(
        self, wanted: RunAgentInput, seen: str
    ) -> AbstractAsyncContextManager[httpx2.EventSource]:
        if seen:
            path, headers = path_of(wanted.thread_id, "events"), {"Last-Event-ID": seen}
            return self._http.sse(path, headers=headers, max_event_size=MAX_EVENT)
        body = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
        return self._http.sse("agui", method="POST", json=body, max_event_size=MAX_EVENT)

    def _unreachable(self, error: Exception) -> ChatClientError:
        why = str(error).rstrip(".") or type(error).__name__
        return ChatClientError(f"Cannot reach {self._http.base_url}: {why}.")


def _event(data: str) -> Event | None:
    """Return the event in ``data``, ``None`` if this release does not know its type."""
    try:
        return _EVENT.validate_json(data)
    except ValidationError as problem:
        if read_text(_Typed, data).type not in _TYPES:
            return None
        raise ChatClientError("The server sent an event that is not AG-UI.") from problem
