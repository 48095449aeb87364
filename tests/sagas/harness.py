"""Saga methods as a client sends them, and the replies byte for byte, without the envelope.

The module also has the ways to reach a server, and a user who answers steps.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, ConfigDict

from anabranch import AnswerError, Capabilities
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    SampleReply,
    SampleRequest,
    TextBlock,
    UrlRequest,
)
from tests.mcp.harness import HANDSHAKE, MODERN, ROOT, Answers, connected, http


class Number(BaseModel):
    """A form that asks for a number."""

    n: int


RESULT_TYPE = "resultType"
"""Stamped by the SDK on every result of the modern era, also on a suspended saga's."""


class _Request(types.Request[dict[str, Any], str]):
    method: str
    params: dict[str, Any]


class _Result(types.Result):
    model_config = ConfigDict(extra="allow")


async def raw(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request unchanged; return the result as received, without the fields that the SDK adds."""
    request = _Request(method=method, params=params)
    result = await client.session.send_request(request, _Result)
    found = result.model_dump(mode="json", by_alias=True, exclude_unset=True)
    found.pop(RESULT_TYPE, None)
    found.pop("_meta", None)
    return found


async def call_saga(client: Client, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return await raw(client, "tools/callSaga", {"name": name, "arguments": arguments})


async def resume_saga(client: Client, token: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """Resume a saga; ``steps`` are all completed steps."""
    params = {"sagaToken": token, "completedSteps": list(steps)}
    return await raw(client, "tools/resumeSaga", params)


async def refusal(client: Client, method: str, params: dict[str, Any]) -> types.ErrorData:
    with pytest.raises(MCPError) as refused:
        await raw(client, method, params)
    return refused.value.error


REFUSED: Final = types.ErrorData(
    code=-32602, message="Invalid or expired sagaToken", data={"reason": "invalid_saga_token"}
)
"""The only error for a token that is refused."""


def accepted(step_id: str, **content: Any) -> dict[str, Any]:
    """A step that the user has completed."""
    return {"stepId": step_id, "result": {"action": "accept", "content": content}}


def said(step_id: str, text: str) -> dict[str, Any]:
    """A step that a model has completed."""
    content = {"type": "text", "text": text}
    return {"stepId": step_id, "result": {"role": "assistant", "content": content, "model": "m"}}


def failed(step_id: str, message: str = "not today", code: int = -32001) -> dict[str, Any]:
    """A step that the client could not complete."""
    return {"stepId": step_id, "error": {"code": code, "message": message}}


def text_in(result: Mapping[str, Any]) -> str:
    """Return the text of a result, which must be one block."""
    (block,) = result["content"]
    text: str = block["text"]
    return text


WAYS: Final = [
    *((transport, era) for transport in ("memory", "stdio", "http") for era in (HANDSHAKE, MODERN)),
    ("http without a way back", HANDSHAKE),
]
"""How a server can be reached. The last is a session over which it could not ask anything."""


@asynccontextmanager
async def reached(
    way: tuple[str, str], server: MCPServer[Any], target: Path, answers: Answers | None = None
) -> AsyncGenerator[Client]:
    """Connect a client to ``server``; over stdio, to a process that serves ``target``."""
    transport, era = way
    if transport == "memory":
        async with connected(server, era, answers) as client:
            yield client
    elif transport == "stdio":
        command = ["-m", "anabranch", "serve", str(target)]
        process = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT)
        async with connected(process, era, answers) as client:
            yield client
    else:
        closed = transport != "http"
        options = {"stateless_http": True, "json_response": True} if closed else {}
        async with http(server, **options) as url, connected(url, era, answers) as client:
            yield client


@contextmanager
def signed_in(who: str) -> Generator[None]:
    """Sign in as ``who``, as the SDK's middleware would, for connections that start inside."""
    user = AuthenticatedUser(AccessToken(token="t", client_id=who, scopes=[]))
    before = auth_context_var.set(user)
    try:
        yield
    finally:
        auth_context_var.reset(before)


@dataclass
class User:
    """Answers by a function of the step's id and the message, and records questions and notices."""

    answer: Callable[[str, str], Any]
    capabilities: Capabilities = field(default_factory=Capabilities)
    asked: list[str] = field(default_factory=list[str])
    notices: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    async def sample(self, request: SampleRequest, *, step_id: str) -> SampleReply:
        text = await self._answered(step_id, request.messages[-1].text)
        return SampleReply(content=(TextBlock(text=text),), model="m")

    async def elicit(self, request: ElicitRequest | UrlRequest, *, step_id: str) -> ElicitReply:
        content = await self._answered(step_id, request.message)
        return ElicitReply(action="accept", content=content)

    async def log(self, level: str, message: str) -> None:
        self.notices.append((level, message))

    async def notify(self, message: str, progress: float | None, total: float | None) -> None:
        self.notices.append((message, progress, total))

    async def _answered(self, step_id: str, message: str) -> Any:
        self.asked.append(step_id)
        answer = self.answer(step_id, message)
        answer = await answer if hasattr(answer, "__await__") else answer
        if isinstance(answer, AnswerError):
            raise answer
        return answer
