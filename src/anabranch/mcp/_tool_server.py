"""A running server whose tools are called one by one: its connection, and its tools as they are now.

A lost connection is made again, once for each request. The request is then repeated if it cannot
have been carried out, or if the tool takes idempotency keys; otherwise its caller is informed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import Client, MCPError
from pydantic import BaseModel, ValidationError

from anabranch._asking.answerer import Answerer
from anabranch._asking.host import Capabilities
from anabranch._encodable import encodable
from anabranch._engine.combine import cancel_and_wait
from anabranch.errors import ToolError
from anabranch.mcp._addressing import Addressed, CallInFlight, forget_call
from anabranch.mcp._client import Connectable, Era, connect, misfit
from anabranch.mcp._client_answers import answer_elicit, answer_sample
from anabranch.mcp._heartbeat import is_heartbeat
from anabranch.mcp._repeating import causes, is_lost, keyed_meta
from anabranch.mcp._tool_list import ToolList
from anabranch.mcp._transports import Started

__all__ = ["RoundOfAnswers", "ToolServer", "answer_round"]

UNASKED: Final = 0.1
"""Seconds before a call goes on that has only asked to be repeated."""

PATIENCE: Final = 120.0
"""Seconds within which a server must answer; a command may have to be installed first."""

TERMINATED: Final = ("Session terminated", "Session not found")
"""What is said where the server does not know the session any more: by the SDK's client, by servers."""


@dataclass(frozen=True, slots=True)
class RoundOfAnswers:
    """What the next round of a call is sent: the answers to the round before, and its state."""

    responses: types.InputResponses
    state: str | None


async def answer_round(asked: types.InputRequiredResult, answerer: Answerer) -> RoundOfAnswers:
    """Return what ``answerer`` answers to all that a round asks.

    Raises:
        ToolError: it refuses, or what is asked has not been declared.
    """
    responses: dict[str, Any] = {}
    for key, request in (asked.input_requests or {}).items():
        response: BaseModel
        match request:
            case types.CreateMessageRequest(params=params):
                response = await answer_sample(answerer, key, params)
            case types.ElicitRequest(params=params):
                response = await answer_elicit(answerer, key, params)
            case _:
                raise ToolError("The server asks for the roots of this client, which has none.")
        if isinstance(response, types.ErrorData):
            raise ToolError(f"The server's request was refused: {response.message}")
        responses[key] = response
    if not responses:
        await anyio.sleep(UNASKED)
    return RoundOfAnswers(responses, asked.request_state)


class ToolServer:
    """One server.

    Args:
        target: returns what to connect to, for each connection.
        place: how errors refer to it.
        capabilities: what it may ask for.
        era: the protocol's era.

    Attributes:
        tools: its tools.
    """

    def __init__(
        self,
        target: Callable[[], Connectable],
        place: str,
        capabilities: Capabilities,
        era: Era = "auto",
    ) -> None:
        self.place = place
        self.tools: ToolList = ToolList(place)
        self._target = target
        self._era: Era = era
        self._addressed = Addressed(capabilities)
        self._links: list[_Link] = []
        """The last is the present one; those before it have requests that are not answered yet."""
        self._connecting = asyncio.Lock()

    async def open(self) -> str:
        """Connect, and return what the server is called.

        Raises:
            ToolError: it cannot be reached, or does not speak MCP.
        """
        info = (await self._connected()).client.server_info
        return info.name if info is not None else ""

    async def close(self) -> None:
        """Close the connection."""
        for link in self._links:
            await link.close()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        answerer: Answerer,
        *,
        owner: str,
        key: str,
        answers: RoundOfAnswers | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run one round of a call; return its result, or what it asks before the next round.

        Args:
            name: of the tool.
            arguments: of the call.
            answerer: receives notices; in the handshake era it answers the call's questions, too.
            owner: questions of calls with the same owner may be confused with each other.
            key: the call's idempotency key.
            answers: to the round before.

        Raises:
            ToolError: the server cannot be reached, the connection was lost, or the server has
                refused the call, or has answered something that it must not.
        """
        repeated = False
        while True:
            link = await self._connected()
            call = CallInFlight(answerer, owner)
            try:
                with link.used():
                    async with self._addressed.calling(call):
                        return await self._round(link.client, call, name, arguments, key, answers)
            except (MCPError, ValidationError, RuntimeError) as error:
                if (problem := misfit(name, error)) is not None:
                    raise ToolError(problem) from error
                terminated = isinstance(error, MCPError) and error.message in TERMINATED
                lost = terminated or not link.is_usable or is_lost(error)
                if lost:
                    link.retire()
                if not repeated and (terminated or (lost and self.tools.takes_key(name))):
                    repeated = True
                    continue
                raise self._refusal(error, name, lost=lost) from error

    async def _round(
        self,
        client: Client,
        call: CallInFlight,
        name: str,
        arguments: Mapping[str, Any],
        key: str,
        answers: RoundOfAnswers | None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        async def notify(progress: float, total: float | None, message: str | None) -> None:
            if not is_heartbeat(progress, total, message):
                call.notify(message or "", progress, total)

        return await client.session.call_tool(
            encodable(name),
            encodable(dict(arguments)),
            progress_callback=notify,
            input_responses=None if answers is None else answers.responses,
            request_state=None if answers is None else answers.state,
            meta=keyed_meta(key) if answers is None else None,
            allow_input_required=True,
        )

    def _refusal(self, error: Exception, name: str, *, lost: bool) -> ToolError:
        if lost:
            return ToolError(
                f"The connection to {self.place} was lost while {name!r} ran, so it is not known"
                " whether it has finished. Find out before calling it again."
            )
        if isinstance(error, MCPError):
            return ToolError(f"{self.place} has refused the call: {error.message}")
        return ToolError(f"{self.place} has answered with something that is not MCP.")

    async def _connected(self) -> _Link:
        async with self._connecting:
            if not self._links or not self._links[-1].is_usable:
                target = self._target()
                link = _Link(self._client_of(target), self.tools)
                try:
                    await link.open()
                except Exception as error:
                    raise ToolError(await self._unreachable(target, error)) from error
                self._links = [*(each for each in self._links if each.is_open), link]
            return self._links[-1]

    def _client_of(self, target: Connectable) -> Client:
        client = connect(target, self._addressed, era=self._era)
        client.message_handler = self.tools.on_message
        return client

    async def _unreachable(self, target: Connectable, error: Exception) -> str:
        said = await target.last_words() if isinstance(target, Started) else ""
        reason = next((text for each in causes(error) if (text := _reason(each))), "")
        reason = f"{reason}: {said}" if reason and said else reason or said or type(error).__name__
        return f"{self.place} cannot be used: {encodable(reason).rstrip('.')}."


def _reason(cause: BaseException) -> str:
    match cause:
        case ToolError():
            return str(cause)
        case MCPError() if is_lost(cause):
            return "it has ended the connection"
        case MCPError():
            return cause.message
        case ValidationError():
            return "it answers with something that is not MCP"
        case OSError():
            return cause.strerror or str(cause)
        case _:
            return str(cause)


class _Link:
    """One connection, in a task of its own: the SDK's client is left by the task that enters it.

    Attributes:
        client: the SDK's client.
    """

    def __init__(self, client: Client, tools: ToolList) -> None:
        self.client = client
        self._tools = tools
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calls = 0
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """Whether it has to be closed."""
        return self._task is not None and not self._task.done()

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        if self._is_retired or not self.is_open:
            return False
        # The SDK has no public way to ask whether a connection has ended.
        session: Any = self.client.session
        return not getattr(session._dispatcher, "_closed", False)  # noqa: SLF001

    async def open(self) -> None:
        """Connect, and list the tools.

        Raises:
            TimeoutError: the server does not answer in time.
            Exception: as the SDK's client raises it.
        """
        context = copy_context()
        context.run(forget_call)
        task = self._task = asyncio.create_task(self._run(), context=context)
        done: set[asyncio.Future[None]] = set()
        try:
            done, _ = await asyncio.wait(
                {task, self._opened}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not done:
                await cancel_and_wait([task])
        if task in done:
            task.result()
        if not done:
            raise TimeoutError(f"it has not answered within {PATIENCE:g} s")

    @contextmanager
    def used(self) -> Generator[None]:
        """Hold the connection open for a request, although it is retired meanwhile."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._is_retired:
                self.retire()

    def retire(self) -> None:
        """Disconnect when no request is left."""
        self._is_retired = True
        if not self._calls:
            self._left.set()

    async def close(self) -> None:
        """Disconnect."""
        self._left.set()
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # those who called have read it, or it came with the end

    async def _run(self) -> None:
        async with self.client as client:
            await self._tools.read(client)
            self._opened.set_result(None)
            following = asyncio.create_task(self._tools.follow(client))
            try:
                await self._left.wait()
            finally:
                await cancel_and_wait([following])
