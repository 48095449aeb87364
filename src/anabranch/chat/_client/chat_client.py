"""``ChatClient``: leads conversations on a chat's server, and answers its questions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

import httpx2
from ag_ui.core import (
    CustomEvent,
    Event,
    Interrupt,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    UserMessage,
)
from pydantic import BaseModel, RootModel

from anabranch._asking import Answerer
from anabranch.chat._client.agui_connection import (
    PAUSES,
    AguiConnection,
    new_id,
    path_of,
    run_input,
)
from anabranch.chat._client.chat_reply import (
    NODE,
    ChatClientError,
    ChatReply,
    ReplyReader,
    read_text,
)
from anabranch.chat._client.interrupts import Handlers, OpenQuestion
from anabranch.chat._plugins.plugin import PluginClient


class _Stopped(BaseModel):
    stopped: bool


class ChatClient:
    """A client of a chat server (``anabranch web``): sends messages and answers questions.

    ``async with`` keeps connections open between calls; otherwise each call opens a new connection.

    Args:
        url: the application's address, as ``anabranch web`` prints it. A ``?token=`` in the address
            becomes the token.
        plugins: ``plugin.client`` of each tool whose questions this client answers.
        token: the token that the server demands.
        headers: further headers of each request, such as the cookie of an application's session.
        otherwise: answers questions of tools without a plugin. By default, such a question raises
            an error and stays open.
        reconnects: seconds to wait before each attempt to reconnect; an empty list means no
            attempt.
        transport: the HTTP transport of the requests; by default, the network.

    Raises:
        ValueError: if ``url`` is not an HTTP URL, or two plugins belong to tools of the same name.
    """

    def __init__(
        self,
        url: str,
        plugins: Iterable[PluginClient] = (),
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        otherwise: Answerer | None = None,
        reconnects: Sequence[float] = PAUSES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._base, in_url = _split(url)
        self._headers = dict(headers or {})
        if token or in_url:
            self._headers["Authorization"] = f"Bearer {token or in_url}"
        self._handlers = Handlers(plugins, otherwise)
        self._reconnects = tuple(reconnects)
        self._transport = transport
        self._http: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<ChatClient of {self._base}>"

    async def __aenter__(self) -> Self:
        """Keep connections open until the end of the block."""
        self._http = self._new_http()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def say(self, thread: str, text: str, *, at: str | None = None) -> ChatReply:
        """Send a message, answer the questions that tools then ask, and return the last reply.

        The arguments and errors are those of :meth:`stream`. If the caller cancels, the client
        stops reading and the turn continues; :meth:`stop` stops the turn.
        """
        return await _reply_of(self.stream(thread, text, at=at))

    async def resume(self, thread: str) -> ChatReply:
        """Answer the open questions of a thread, and return the last reply.

        Another client may have started the turn that asks, or this client before a restart.

        Raises:
            ChatClientError: as for :meth:`stream`.
        """
        return await _reply_of(self.stream_answers(thread))

    async def stream(
        self, thread: str, text: str, *, at: str | None = None
    ) -> AsyncGenerator[Event]:
        """Send a message and answer the questions that follow; yield all AG-UI events.

        The stream ends when no question is open. The server creates a missing thread, and cancels
        earlier open questions. Between the events, handlers answer new questions, and the client
        sends these answers together.

        Args:
            thread: the thread's id.
            text: the message; ``/TOOL name=value …`` calls a tool without the model.
            at: the node that the message follows; by default, the thread's last node.

        Raises:
            ChatClientError: if the server is unreachable, or refuses the message or an answer; if
                the turn fails; or if a question has no handler, which leaves the question open.
            TypeError: if a handler returns no answer to its question.
            AnswerError: if ``otherwise`` could not answer; the question stays open.
            Exception: if a handler raises it.
        """
        async with self._connected() as connection:
            async for event in self._turn(connection, _message(thread, text, at)):
                yield event

    async def stream_answers(self, thread: str) -> AsyncGenerator[Event]:
        """Answer the open questions of a thread, and yield all events that follow; see :meth:`stream`.

        If a turn is running, the events begin with its first.
        """
        async with self._connected() as connection:
            state = await connection.state(thread)
            asked = [] if state.running else await _open_in(connection, thread)
            if state.running:
                async for event in self._turn(connection, run_input(thread), after=state.position):
                    yield event
            elif asked:
                wanted = run_input(thread, resume=await self._handlers.answers(asked))
                async for event in self._turn(connection, wanted):
                    yield event

    async def stop(self, thread: str) -> bool:
        """Stop the running turn of a thread; return whether a turn was running.

        Raises:
            ChatClientError: if the server is unreachable, or the thread does not exist.
        """
        async with self._connected() as connection:
            answered = await connection.request("POST", path_of(thread, "stop"), {})
            return read_text(_Stopped, answered).stopped

    async def _turn(
        self, connection: AguiConnection, wanted: RunAgentInput, *, after: str = ""
    ) -> AsyncGenerator[Event]:
        while True:
            last: Event | None = None
            async with aclosing(connection.run(wanted, after=after)) as events:
                async for last in events:
                    yield last
            match last:
                case RunErrorEvent(message=message):
                    raise ChatClientError(message)
                case RunFinishedEvent(outcome=RunFinishedInterruptOutcome(interrupts=asked)):
                    pass
                case RunFinishedEvent():
                    return
                case _:  # the client missed the last events
                    asked = await _open_in(connection, wanted.thread_id)
                    if not asked:
                        yield await _last_node(connection, wanted.thread_id)
                        return
            after = ""
            wanted = run_input(wanted.thread_id, resume=await self._handlers.answers(asked))

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[AguiConnection]:
        if self._http is not None:
            yield AguiConnection(self._http, self._reconnects)
            return
        async with self._new_http() as http:
            yield AguiConnection(http, self._reconnects)

    def _new_http(self) -> httpx2.AsyncClient:
        # During a run, a server sends an event within 15 seconds.
        # During a run, a server is silent for 30 seconds at most (``event_stream.KEEP_ALIVE``).
        timeout = httpx2.Timeout(30, read=60)
        return httpx2.AsyncClient(
            base_url=self._base, headers=self._headers, timeout=timeout, transport=self._transport
        )


def _message(thread: str, text: str, at: str | None) -> RunAgentInput:
    said = UserMessage(id=new_id("message"), role="user", content=text)
    return run_input(thread, messages=[said], at=at)


async def _reply_of(events: AsyncGenerator[Event]) -> ChatReply:
    reader = ReplyReader()
    async with aclosing(events):
        async for event in events:
            reader.read(event)
    return reader.reply


async def _open_in(connection: AguiConnection, thread_id: str) -> list[Interrupt]:
    listed = await connection.request("GET", path_of(thread_id, "pending"))
    found = read_text(RootModel[list[OpenQuestion]], listed).root
    # A call of a front end's tool is for the front end that offers the tool.
    return [each.as_interrupt() for each in found if each.kind != "call"]


async def _last_node(connection: AguiConnection, thread_id: str) -> Event:
    state = await connection.state(thread_id)
    last = next((each for each in state.nodes if each["id"] == state.refs.get("head")), None)
    return CustomEvent(name=NODE, value=last)


def _split(url: str) -> tuple[str, str | None]:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise ValueError(f"{url!r} is no address of a chat. Give one such as http://host:8080/.")
    token = parse_qs(parts.query).get("token", [None])[0]
    path = parts.path.rstrip("/") + "/"
    return urlunsplit((parts.scheme, parts.netloc, path, "", "")), token
