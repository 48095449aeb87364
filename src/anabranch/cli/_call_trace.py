"""A trace of a call: describes the messages between a client and its server in readable lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCRequest, JSONRPCResponse

from anabranch._text import json_line
from anabranch.cli._output import counted

Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Write: TypeAlias = MemoryObjectSendStream[SessionMessage]

CALLS = {"tools/call", "tools/callSaga", "tools/resumeSaga"}
WHO = {
    "sampling/createMessage": "the model",
    "elicitation/create": "the user",
    "sampling": "the model",
    "elicitation": "the user",
}
"""The side that answers, by the method of a request or the type of a saga's step."""


class CallTrace:
    """Describes the messages of a call; ``explain`` returns a line to add for a step id."""

    def __init__(
        self, say: Callable[[str], None], explain: Callable[[str], str] = lambda _: ""
    ) -> None:
        self._say = say
        self._explain = explain
        self._calls: set[Any] = set()
        self._rounds = 0

    def sent(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest) and message.method in CALLS:
            self._calls.add(message.id)
            params = message.params or {}
            if answers := params.get("inputResponses"):
                self._say(f"→ tools/call again, with {counted(len(answers), 'answer')}")
            elif completed := params.get("completedSteps"):
                self._say(f"→ {message.method}, with {counted(len(completed), 'completed step')}")
            elif name := params.get("name"):  # a probe for saga methods has no name
                arguments = json_line(params.get("arguments") or {})
                self._say(f"→ {message.method} {name} {arguments}")
        elif isinstance(message, JSONRPCResponse):
            self._say("→ the answer")

    def received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest) and message.method in WHO:
            who = _who(message.method, message.params)
            self._say(f"← a question for {who}, while the tool waits")
        elif isinstance(message, JSONRPCResponse) and message.id in self._calls:
            asked = _asked(message.result)
            if not asked:
                self._say("← the result")
                return
            self._rounds += 1
            steps = ", ".join(f"{step} ({who})" for step, who in asked)
            self._say(
                f"← round {self._rounds} ends with {counted(len(asked), 'question')}: {steps}"
            )
            for line in filter(None, [self._explain(step) for step, _ in asked]):
                self._say(f"  {line}")


def _asked(result: dict[str, Any]) -> list[tuple[str, str]]:
    requests: dict[str, Any] = result.get("inputRequests") or {}
    steps: list[dict[str, Any]] = result.get("steps") or []
    asked = [
        (name, _who(str(each["method"]), each.get("params"))) for name, each in requests.items()
    ]
    return asked + [(str(step["stepId"]), _who(str(step["type"]), step)) for step in steps]


def _who(kind: str, params: Mapping[str, Any] | None) -> str:
    link = (params or {}).get("url")
    return f"{WHO[kind]}, by the link {link}" if link else WHO[kind]


@asynccontextmanager
async def traced(transport: Transport, trace: CallTrace) -> AsyncGenerator[tuple[Read, Write]]:
    async with transport as (inner_read, inner_write), anyio.create_task_group() as pumps:
        arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, leaving = anyio.create_memory_object_stream[SessionMessage](0)

        async def pump_in() -> None:
            async with arriving:
                async for item in inner_read:
                    if isinstance(item, SessionMessage):
                        trace.received(item.message)
                    await arriving.send(item)

        async def pump_out() -> None:
            async with inner_write:
                async for item in leaving:
                    trace.sent(item.message)
                    await inner_write.send(item)

        async with arriving, read, write, leaving:
            pumps.start_soon(pump_in)
            pumps.start_soon(pump_out)
            yield read, write
            pumps.cancel_scope.cancel()
