"""The real ``mcp.Client`` against our servers: in this process, over stdio, over HTTP.

This module has the connections, and a client that answers by two functions and records messages.
It imitates nothing of the SDK.
"""

import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, cast

import anyio
import mcp_types as types
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import AESGCMRequestStateCodec, MCPServer
from mcp.shared.message import SessionMessage
from pydantic import ConfigDict

from anabranch.mcp import create_server
from anabranch.mcp._client import call_tool, list_tools
from anabranch.mcp._transports import WithHeaders
from anabranch.testing import MockClient
from anabranch.tool import Tool

ROOT: Final = Path(__file__).parents[2]
KEY: Final = "a secret of thirty-two bytes, or more"
HANDSHAKE: Final = "legacy"
MODERN: Final = "2026-07-28"
ERAS: Final = (HANDSHAKE, MODERN)
MODES: Final = (*ERAS, "auto")

Elicit = Callable[[Any], Any]
Sample = Callable[[types.CreateMessageRequestParams], Any]


def accept(**content: Any) -> types.ElicitResult:
    """Return the user's answer in the form of the wire."""
    return types.ElicitResult(action="accept", content=content or None)


DECLINE: Final = types.ElicitResult(action="decline")
CANCEL: Final = types.ElicitResult(action="cancel")


def say(text: str) -> types.CreateMessageResult:
    """Return the model's reply in the form of the wire."""
    content = types.TextContent(type="text", text=text)
    return types.CreateMessageResult(role="assistant", content=content, model="test")


def use_tool(name: str, **arguments: Any) -> types.CreateMessageResultWithTools:
    """Return the model's request to call a tool, in the form of the wire."""
    use = types.ToolUseContent(type="tool_use", id=f"use-{name}", name=name, input=arguments)
    return types.CreateMessageResultWithTools(
        role="assistant", content=[use], model="test", stop_reason="toolUse"
    )


def prompt_of(params: types.CreateMessageRequestParams) -> str:
    """Return the text of the last message to the model."""
    content = params.messages[-1].content
    blocks = content if isinstance(content, list) else [content]
    return "".join(block.text for block in blocks if isinstance(block, types.TextContent))


def echo(params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """A model that repeats the text of the last message in brackets."""
    return say(f"<{prompt_of(params)}>")


class Answers:
    """Answers questions by two functions; ``None`` stands for a capability that is not declared.

    A function may return an ``ErrorData``, raise, or be async.

    Attributes:
        asked: messages of the questions to the user, in order.
        prompted: prompts of the samples for the model, in order.
        logs, progress: the notices, in order.
    """

    def __init__(
        self,
        elicit: Elicit | None = None,
        sample: Sample | None = None,
        *,
        sampling_tools: bool = True,
    ) -> None:
        self.asked: list[Any] = []
        self.prompted: list[types.CreateMessageRequestParams] = []
        self.logs: list[tuple[str, Any]] = []
        self.progress: list[tuple[float, float | None, str | None]] = []
        self._elicit = elicit
        self._sample = sample
        self._sampling_tools = sampling_tools

    async def elicit(self, _: object, params: Any) -> Any:
        assert self._elicit is not None
        self.asked.append(params)
        return await _settled(self._elicit(params))

    async def sample(self, _: object, params: types.CreateMessageRequestParams) -> Any:
        assert self._sample is not None
        self.prompted.append(params)
        return await _settled(self._sample(params))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.data))

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments for ``mcp.Client``."""
        tools = types.SamplingToolsCapability() if self._sampling_tools else None
        return {
            "elicitation_callback": self.elicit if self._elicit is not None else None,
            "sampling_callback": self.sample if self._sample is not None else None,
            "sampling_capabilities": types.SamplingCapability(tools=tools),
            "logging_callback": self.log,
            "log_level": "debug",
        }


async def _settled(answer: Any) -> Any:
    return await answer if hasattr(answer, "__await__") else answer


@asynccontextmanager
async def connected(
    server: Any, mode: str, answers: Answers | None = None, **options: Any
) -> AsyncGenerator[Client, None]:
    """Connect to ``server`` (an ``MCPServer``, a URL, a process); ``answers`` answers its questions."""
    given = (answers or Answers()).options()
    with _unwrapped():
        async with Client(server, mode=mode, **{**given, **options}) as client:
            yield client


@contextmanager
def _unwrapped() -> Generator[None, None, None]:
    """Raise a failed assertion without the exception groups of nested task groups."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise _innermost(group) from None


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first, *others = group.exceptions
    if others:
        return group
    return (
        _innermost(cast("BaseExceptionGroup[BaseException]", first))
        if isinstance(first, BaseExceptionGroup)
        else first
    )


def serving(*tools: Tool[Any], **options: Any) -> MCPServer[Any]:
    """Return a server of ``tools``, named ``test``."""
    given: dict[str, Any] = {"keys": [KEY], **options}
    return create_server("test", tools, **given)


@asynccontextmanager
async def over(transport: str, server: MCPServer[Any], **options: Any) -> AsyncGenerator[Any, None]:
    """Return the target to connect to, for the transports that run in this process."""
    if transport == "http":
        async with http(server, **options) as url:
            yield url
    else:
        yield server


@asynccontextmanager
async def http(server: MCPServer[Any], **options: Any) -> AsyncGenerator[str, None]:
    async with asgi(server.streamable_http_app(**options)) as url:
        yield url


async def called_by_us(client: Client, name: str) -> object:
    """List the tools and call one, as this package's own clients do."""
    await list_tools(client)
    return await call_tool(client, name, {}, MockClient())


def bearing(url: str, token: str) -> WithHeaders:
    """Return a connection to the server at ``url`` whose requests have a bearer token."""
    return WithHeaders(url, {"Authorization": f"Bearer {token}"})


@asynccontextmanager
async def asgi(app: Any) -> AsyncGenerator[str, None]:
    """Serve an application on loopback; yields the URL of its ``/mcp``."""
    # asyncio turns Nagle's algorithm off for a socket whose type names the protocol: no reply then
    # waits for an ACK.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with listening, _unwrapped():
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        running = _Uvicorn(app)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.serve, [listening])
            await running.ready.wait()
            try:
                yield f"http://127.0.0.1:{port}/mcp"
            finally:
                running.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Reports when it listens, and keeps the test run's signal handlers."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        self.ready = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def stdio(*arguments: str) -> StdioServerParameters:
    """Start ``stdio_server.py`` as a process."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.mcp.stdio_server", *arguments],
        env=dict(os.environ),
        cwd=ROOT,
    )


@asynccontextmanager
async def meddling(
    url: str, alter: Callable[[types.JSONRPCMessage], types.JSONRPCMessage]
) -> AsyncGenerator[tuple[Any, Any], None]:
    """Return a transport to ``url`` that alters the client's messages on the way."""
    async with streamable_http_client(url) as (read, write):
        yield read, _Meddled(write, alter)


class _Meddled:
    """A write stream that alters each message."""

    def __init__(self, write: Any, alter: Callable[[Any], Any]) -> None:
        self._write = write
        self._alter = alter

    async def send(self, item: SessionMessage) -> None:
        await self._write.send(replace(item, message=self._alter(item.message)))

    async def aclose(self) -> None:
        await self._write.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


# -- one round by hand -------------------------------------------------------------------------


class _Call(types.Request[dict[str, Any], str]):
    method: str = "tools/call"
    params: dict[str, Any]


class Reply(types.Result):
    """The result of a ``tools/call``, with each field as received."""

    model_config = ConfigDict(extra="allow")


async def call_once(
    client: Client,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
    responses: Any = None,
) -> dict[str, Any]:
    """Send one ``tools/call`` without any checks by the client, and return the result's JSON."""
    params: dict[str, Any] = {"name": name, "arguments": dict(arguments or {})}
    if state is not None:
        params["requestState"] = state
    if responses is not None:
        params["inputResponses"] = responses
    reply = await client.session.send_request(_Call(params=params), Reply)
    return reply.model_dump(by_alias=True, mode="json", exclude_none=True)


def plaintext(state: str, keys: Iterable[str] = (KEY,)) -> str:
    """Return the journal's text form inside a sealed state."""
    claims = json.loads(AESGCMRequestStateCodec(list(keys)).unseal(state))
    inner: str = claims["s"]
    return inner


def sealed(state: str, text: str, keys: Iterable[str] = (KEY,)) -> str:
    """Return ``state`` with ``text`` in place of its journal, sealed with the server's keys."""
    codec = AESGCMRequestStateCodec(list(keys))
    claims = {**json.loads(codec.unseal(state)), "s": text}
    return codec.seal(json.dumps(claims).encode())


def text_of(result: types.CallToolResult) -> str:
    """Return the text of a result, which must be one block."""
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text
