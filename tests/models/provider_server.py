"""A local server with the wire formats of Anthropic and OpenAI, over a real socket.

The server answers in one piece or as server-sent events. It checks every body against the published
rules (``provider_rules.py``), and refuses a faulty one as a provider does. The answers come from a
script, in order. An answer may be an error, may stop in the middle, or may never come.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.models.provider_formats import Call, Say, chat, messages, responses
from tests.models.provider_formats.answers import event
from tests.models.provider_rules import chat_faults, messages_faults, responses_faults
from tests.sockets import listening

__all__ = ["Call", "Provider", "Refuse", "Say", "Silence", "provider_server"]


@dataclass(frozen=True)
class Refuse:
    """An HTTP error. By default, its headers ask clients not to retry."""

    status: int
    message: str = "no"
    kind: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=lambda: {"x-should-retry": "false"})


@dataclass(frozen=True)
class Silence:
    """No answer; the connection stays open until the client closes it."""


Answer: TypeAlias = Say | Refuse | Silence


@dataclass(frozen=True)
class _Format:
    faults: Callable[[Mapping[str, Any]], list[str]]
    whole: Callable[[Say], dict[str, Any]]
    events: Callable[[Say], Iterator[bytes]]


OVERLOADED = {"type": "overloaded_error", "code": "server_error", "message": "Overloaded"}
FORMATS = {
    "/v1/messages": _Format(messages_faults, messages.whole, messages.events),
    "/responses": _Format(responses_faults, responses.whole, responses.events),
    "/v1/chat/completions": _Format(chat_faults, chat.whole, chat.events),
    "/chat/completions": _Format(chat_faults, chat.whole, chat.events),
}


@dataclass
class Provider:
    """The script of the server, and a record of its requests.

    Attributes:
        url: address of the server.
        answers: remaining answers.
        paths: paths of the requests so far.
        bodies: bodies of the requests so far.
        continues: the test sets this to release the held rest of an answer.
        left: set when a client has left before the end of an answer.
        on_silence: called when the server stops sending without closing the connection.
    """

    url: str = ""
    answers: deque[Answer] = field(default_factory=deque[Answer])
    paths: list[str] = field(default_factory=list[str])
    bodies: list[Any] = field(default_factory=list[Any])
    continues: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    on_silence: Callable[[], None] = lambda: None

    def will(self, *answers: Answer) -> None:
        self.answers.extend(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, body = await _read(reader)
        self.paths.append(path)
        self.bodies.append(body)
        wire = FORMATS[path.partition("?")[0]]
        answer = self.answers.popleft()
        if faults := wire.faults(body):
            answer = Refuse(400, "; ".join(faults))
        match answer:
            case Refuse():
                error = {"message": answer.message, "type": answer.kind}
                _send(writer, answer.status, {"type": "error", "error": error}, answer.headers)
            case Silence():
                await self._wait(reader)
            case Say() if body.get("stream"):
                await self._stream(answer, list(wire.events(answer)), reader, writer)
            case Say():
                _send(writer, 200, wire.whole(answer))

    async def _stream(
        self,
        say: Say,
        events: Sequence[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for each in events if say.cut is None else events[: say.cut]:
            writer.write(_chunk(each))
            await writer.drain()
        if say.cut is not None and say.end == "silent":
            await self._wait(reader)
        elif say.cut is not None and say.end == "overloaded":
            writer.write(
                _chunk(event({"type": "error", "error": OVERLOADED}, "error")) + _chunk(b"")
            )
        elif say.cut is not None and say.end == "held":
            await self.continues.wait()
            writer.write(b"".join(map(_chunk, events[say.cut :])) + _chunk(b""))
        elif say.cut is None or say.end == "closed":
            writer.write(_chunk(b""))
        # Otherwise the answer breaks: the connection closes although a chunk is due.

    async def _wait(self, reader: asyncio.StreamReader) -> None:
        self.on_silence()
        await reader.read()
        self.left.set()


def _chunk(content: bytes) -> bytes:
    """Return a chunk of a body; an empty chunk ends the body."""
    return b"%x\r\n%s\r\n" % (len(content), content)


async def _read(reader: asyncio.StreamReader) -> tuple[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return request.split(" ")[1], json.loads(body)


def _send(
    writer: asyncio.StreamWriter,
    status: int,
    content: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> None:
    body = json.dumps(content).encode()
    lines = {"content-type": "application/json", "content-length": str(len(body))}
    lines |= {"connection": "close"} | dict(headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {status} Answer\r\n{head}\r\n".encode() + body)


@asynccontextmanager
async def provider_server() -> AsyncGenerator[Provider]:
    """Listen within the block; leaving the block ends all connections."""
    provider = Provider()
    async with listening(provider.serve) as port:
        provider.url = f"http://127.0.0.1:{port}"
        yield provider
