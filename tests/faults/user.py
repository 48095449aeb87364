"""A user in a chat: starts a run, answers its questions, and reads its events as a page does.

The user repeats a request, byte for byte, until a reply arrives, and resumes the events after the
last one received. The user therefore sees whether each event arrives once and in order, even if
processes die.
"""

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx2

from anabranch._aio import SystemClock, pause
from tests.faults.client import Way

Event = dict[str, Any]


class RefusedError(Exception):
    """A request was refused that the server must accept."""


@dataclass(slots=True)
class User:
    """Performs one call as a user of the chat."""

    name: str
    url: str
    http: httpx2.AsyncClient
    repeated: int = 0
    _events: list[tuple[int, Event]] = field(default_factory=list[tuple[int, Event]])
    _seen: str = "0"

    async def play(
        self, way: Way, arguments: dict[str, Any], *, leave_at: int | None = None
    ) -> dict[str, Any]:
        """Answer all questions; return the tool's result, or a description of the fault."""
        del way, leave_at  # a chat has one way, and this user never leaves
        try:
            return await self._play(arguments)
        except RefusedError as error:
            return _result(str(error))

    async def _play(self, arguments: dict[str, Any]) -> dict[str, Any]:
        thread = f"/threads/{self.name}"
        values = [f"{name}={value}" for name, value in arguments.items()]
        said = {"id": "m1", "role": "user", "content": " ".join(["/errand", *values])}
        empty: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
        begun = {"threadId": self.name, "runId": f"{self.name}.1", "messages": [said], **empty}
        await self._request("POST", "/agui", begun)
        while (ended := await self._end_of_a_run())["type"] == "RUN_FINISHED":
            if not (asked := ended["outcome"].get("interrupts")):
                break
            answer = {"action": "accept", "content": {"on": True}}
            await self._request(
                "POST", f"{thread}/answers", {"interrupt_id": asked[0]["id"], **answer}
            )
        nodes = (await self._request("GET", f"{thread}/tree"))["nodes"]
        if ended.get("outcome") != {"type": "success"}:
            return _result(f"its run ended with {ended}, at {[node['kind'] for node in nodes]}")
        if wrong := " ".join(_wrong_with(self._events, nodes)):
            return _result(wrong)
        if nodes[-1]["kind"] != "results":
            return _result(f"its last node is {nodes[-1]}")
        block = nodes[-1]["content"][0]
        [text] = [each["text"] for each in block["content"]]
        return _result(text, is_error=block["is_error"])

    async def _request(self, method: str, path: str, body: object = None) -> Any:
        while True:
            try:
                response = await self.http.request(
                    method, self.url + path, json=body, headers={"Accept": "application/json"}
                )
                reply = response.json()
            except (httpx2.TransportError, ValueError):
                # The connection broke, maybe in the middle of a reply.
                self.repeated += 1
                continue
            if response.is_success:
                return reply
            if response.is_client_error:
                raise RefusedError(f"{path} was refused: {reply}")
            self.repeated += 1
            await pause(SystemClock(), 0.1)  # the store is out of reach: a page waits as well

    async def _end_of_a_run(self) -> Event:
        """Read events, over several connections if needed, until a run ends; return the last event."""
        while True:
            try:
                async with aclosing(self._following()) as following:
                    async for event in following:
                        if event["type"] in {"RUN_FINISHED", "RUN_ERROR"}:
                            return event
            except httpx2.TransportError:
                self.repeated += 1
            else:
                await pause(SystemClock(), 0.1)  # the store is out of reach

    async def _following(self) -> AsyncGenerator[Event]:
        path = f"{self.url}/threads/{self.name}/events?after={self._seen}"
        async with self.http.stream("GET", path) as response:
            given = ""
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    given = value
                elif name == "data":
                    self._seen = given
                    self._events.append((int(given.partition("-")[0]), json.loads(value)))
                    yield self._events[-1][1]


def _result(text: str, *, is_error: bool = True) -> dict[str, Any]:
    return {"content": [{"text": text}], "isError": is_error}


def _wrong_with(events: list[tuple[int, Event]], nodes: list[Event]) -> Iterable[str]:
    """Return, in words, the faults in the events that a page received."""
    if [number for number, _ in events] != list(range(1, len(events) + 1)):
        yield f"its events have the numbers {[number for number, _ in events]}."
    shown = [each["value"]["id"] for _, each in events if each.get("name") == "anabranch.node"]
    if shown != [node["id"] for node in nodes]:
        there = [f"{node['id']} ({node['kind']}) after {node.get('parent_id')}" for node in nodes]
        yield f"it has shown the nodes {shown}, of {there}."
    begun = [each["runId"] for _, each in events if each["type"] == "RUN_STARTED"]
    ended = [each["runId"] for _, each in events if each["type"] == "RUN_FINISHED"]
    if len(set(begun)) != len(begun) or begun != ended:
        yield f"the runs {begun} have begun, and {ended} have ended."
