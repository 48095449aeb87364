"""The client of a chat server: plugins answer its questions, and the client follows events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from ag_ui.core import CustomEvent, Event, EventType

from anabranch import Accepted, BranchContext, Cancelled, Declined, ElicitResult, tool
from anabranch.chat import (
    ChatClient,
    ChatClientError,
    PluginClient,
    PluginRequest,
    make_chat_app,
    make_plugin,
)
from anabranch.messages import ElicitRequest
from anabranch.stores import open_run_events, open_tree_store
from tests.agents.memory import MemoryTrees
from tests.chat.answerers import Desk, results
from tests.chat.web import SEAT, Seat, model, reserve, serving
from tests.patience import PATIENCE
from tests.stores.lost_events import lose_events


def plugin(*answers: Any) -> tuple[PluginClient, list[PluginRequest[Seat]]]:
    """Return a plugin whose handler gives these answers in turn, and the requests that it receives."""
    requests: list[PluginRequest[Seat]] = []
    left = iter(answers)

    async def handler(request: PluginRequest[Seat]) -> ElicitResult[Seat]:
        requests.append(request)
        answer: ElicitResult[Seat] = next(left)
        return answer

    return make_plugin(reserve).on(SEAT, handler).build().client, requests


def values(events: Iterable[Event], name: str) -> list[Any]:
    return [e.value for e in events if isinstance(e, CustomEvent) and e.name == name]


@asynccontextmanager
async def chat_server(*tools: Any, **options: Any) -> AsyncGenerator[str]:
    store = options.pop("store", None) or MemoryTrees()
    async with serving(make_chat_app(store, model(), tools or [reserve], **options)) as url:
        yield url


async def test_a_message_is_answered() -> None:
    async with chat_server() as url:
        reply = await ChatClient(url).say("t1", "hello")
        assert (reply.text, str(reply), reply.is_stopped) == (
            "You said hello.",
            "You said hello.",
            False,
        )
        async with ChatClient(f"{url}/") as client:
            assert (await client.say("t1", "again", at=reply.node_id)).text == "You said again."
            assert (await client.say("t1", "once more")).text == "You said once more."


async def test_a_question_goes_to_the_handler_of_its_tool_and_key() -> None:
    client, requests = plugin(Accepted(Seat(row=3)))
    async with chat_server() as url:
        reply = await ChatClient(url, plugins=[client]).say("t1", "reserve")
        assert reply.text == "Done."
        [request] = requests
        assert (request.tool_name, request.key, request.seq) == ("reserve", "seat", 0)
        assert request.model is Seat
        assert (request.message, request.params) == ("Which seat?", {"flight": "AB1"})
        assert request.context == {"plane": "A320"}
        assert request.schema["required"] == ["row"]
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            assert "Row 3 on AB1" in (await http.get("/threads/t1/tree")).text


@pytest.mark.parametrize(
    ("answer", "result"), [(Declined(), "No seat: decline"), (Cancelled(), "No seat: cancel")]
)
async def test_a_handler_declines_and_cancels(answer: Any, result: str) -> None:
    client, _ = plugin(answer)
    async with chat_server() as url:
        events = [e async for e in ChatClient(url, [client]).stream("t1", "reserve")]
    assert results(events) == [result]
    assert [e.type for e in events].count(EventType.RUN_FINISHED) == 2


async def test_an_answer_that_does_not_fit_is_not_sent() -> None:
    wrong, _ = plugin(Accepted({"row": "front"}))
    async with chat_server() as url:
        with pytest.raises(TypeError, match="not a Seat"):
            await ChatClient(url, [wrong]).say("t1", "reserve")
        right, _ = plugin(Accepted(Seat(row=2)))
        assert (await ChatClient(url, [right]).resume("t1")).text == "Done."
        assert (await ChatClient(url, [right]).resume("t1")).text == ""  # nothing is open


async def test_a_question_without_a_handler_is_an_error_and_stays_open() -> None:
    desk = Desk({"row": 5})
    async with chat_server() as url:
        with pytest.raises(ChatClientError, match="'Which seat\\?' \\(seat of the tool reserve\\)"):
            await ChatClient(url).say("t1", "reserve")
        reply = await ChatClient(url, otherwise=desk).resume("t1")
    assert reply.text == "Done."
    [(question, step_id)] = desk.asked
    assert isinstance(question, ElicitRequest)
    assert (question.message, question.key, bool(step_id)) == ("Which seat?", "seat", True)


async def test_a_question_with_an_address_goes_to_the_other_answerer() -> None:
    @tool
    async def pay(ctx: BranchContext) -> str:
        return (await ctx.elicit_url("Pay, please.", "https://pay.example/1")).action

    desk = Desk(None)
    async with chat_server(pay) as url:
        events = [e async for e in ChatClient(url, otherwise=desk).stream("t1", "/pay")]
    assert results(events) == ["accept"]
    assert getattr(desk.asked[0][0], "url") == "https://pay.example/1"  # noqa: B009


async def test_an_answer_that_the_server_refuses_says_which_field() -> None:
    desk = Desk({"row": 99})
    async with chat_server() as url:
        with pytest.raises(ChatClientError, match="row") as refused:
            await ChatClient(url, otherwise=desk).say("t1", "reserve")
    assert (refused.value.status, refused.value.reason) == (422, "invalid")
    assert refused.value.errors.keys() == {"row"}


def test_two_plugins_of_one_tool_are_refused() -> None:
    with pytest.raises(ValueError, match="Two plugins are for a tool called 'reserve'"):
        ChatClient("http://127.0.0.1:1", [plugin()[0], plugin()[0]])


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host/", "http:///x"])
def test_a_chat_client_refuses_an_invalid_address(url: str) -> None:
    with pytest.raises(ValueError, match="no address of a chat"):
        ChatClient(url)


async def test_errors_name_their_problem() -> None:
    async with chat_server(token="secret words") as url:
        with pytest.raises(ChatClientError, match="Give the server's token") as refused:
            await ChatClient(url).say("t1", "hello")
        assert refused.value.status == 401
        assert (await ChatClient(url, token="secret words").say("t1", "hello")).text
        client = ChatClient(f"{url}/?token=secret+words")
        assert "secret" not in repr(client)
        for doing, status in [(client.resume("t9"), 404), (client.say("t1", " "), 422)]:
            with pytest.raises(ChatClientError) as refused:
                await doing
            assert refused.value.status == status
    with pytest.raises(ChatClientError, match="Cannot reach") as refused:
        await ChatClient(url).say("t1", "hello")
    assert refused.value.status is None


@tool
async def hang(ctx: BranchContext) -> str:
    await ctx.notify("waiting")
    await asyncio.Event().wait()
    return "never"


async def test_a_turn_continues_without_its_reader_until_another_client_stops_it() -> None:
    async with chat_server(hang) as url, ChatClient(url) as client:
        waiting = asyncio.Event()

        async def read() -> None:
            async for event in client.stream("t1", "/hang"):
                if values([event], "anabranch.notice"):
                    waiting.set()

        reading = asyncio.create_task(read())
        await waiting.wait()
        with pytest.raises(ChatClientError, match="A turn is running") as refused:
            await client.say("t1", "hello")
        assert refused.value.status == 409
        reading.cancel()
        await asyncio.wait([reading])
        assert await client.stop("t1") is True
        assert await client.stop("t1") is False
        with pytest.raises(ChatClientError, match="Unknown thread"):
            await client.stop("other")


async def test_a_stopped_turn_reports_the_stop() -> None:
    begun = asyncio.Event()

    @tool
    async def begin(ctx: BranchContext) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    async with chat_server(begin) as url, ChatClient(url) as client:
        said = asyncio.create_task(client.say("t1", "/begin"))
        await begun.wait()
        assert await client.stop("t1")
        assert (await said).is_stopped


class Cutting(httpx2.AsyncBaseTransport):
    """A network that breaks each of the first connections after a number of events."""

    def __init__(self, *pieces: int) -> None:
        self._network = httpx2.AsyncHTTPTransport()
        self._left: Iterator[int] = iter(pieces)
        self.requests: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        response = await self._network.handle_async_request(request)
        pieces = next(self._left, None)
        if pieces is not None:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = Cut(response.stream, pieces)
        return response

    async def aclose(self) -> None:
        await self._network.aclose()


class Cut(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, pieces: int) -> None:
        self._body, self._pieces = body, pieces
        self.is_drained = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._pieces
        async for chunk in self._body:
            for piece in chunk.split(b"\n\n")[:-1]:
                if left > 0:
                    left -= 1
                    yield piece + b"\n\n"
                elif not self.is_drained:
                    raise httpx2.ReadError("cut")
        raise httpx2.ReadError("cut at the end")

    async def aclose(self) -> None:
        await self._body.aclose()


@pytest.mark.parametrize("pieces", [(0,), (1,), (3,), (0, 1, 1, 1), (2, 1, 0)])
async def test_a_connection_that_breaks_is_made_again(pieces: tuple[int, ...]) -> None:
    network = Cutting(*pieces)
    answering, requests = plugin(Accepted(Seat(row=3)))
    async with chat_server() as url:
        client = ChatClient(url, [answering], transport=network, reconnects=[0] * 9)
        async with client:
            events = [event async for event in client.stream("t1", "reserve")]
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            tree = (await http.get("/threads/t1/tree")).json()
    assert len(requests) == 1
    assert results(events) == ["Row 3 on AB1"]
    kinds = [node["kind"] for node in tree["nodes"]]
    assert kinds == ["user", "assistant", "question", "answer", "results", "assistant"]
    said = [each["id"] for each in values(events, "anabranch.node")]
    assert said == [node["id"] for node in tree["nodes"]]
    assert len(network.requests) > 2


async def test_a_connection_that_stays_broken_is_an_error() -> None:
    async with chat_server() as url:
        client = ChatClient(url, transport=Cutting(*[0] * 9), reconnects=[0, 0])
        async with client:
            with pytest.raises(ChatClientError, match=r"Cannot reach .*: cut"):
                await client.say("t1", "hello")


@pytest.mark.parametrize(("said", "reply"), [("hello", "You said hello."), ("reserve", "Done.")])
async def test_events_missed_over_a_restart_are_read_from_the_tree(said: str, reply: str) -> None:
    """Another process over the same store has none of the events."""
    store = MemoryTrees()
    answering, _ = plugin(Accepted(Seat(row=3)))
    async with chat_server(store=store) as first, chat_server(store=store) as second:
        network = Moving(httpx2.URL(second).port)
        async with ChatClient(first, [answering], transport=network, reconnects=[0] * 3) as client:
            assert (await client.say("t1", said)).text == reply
    assert "GET /threads/t1/events" in network.requests


async def test_events_lost_in_a_crash_are_read_from_the_tree(url: str) -> None:
    """After a crash, new events reuse the numbers of lost ones: the client must not take them for
    the next events.
    """
    store = open_tree_store(url)

    async def crash() -> None:
        events = open_run_events(store)
        await lose_events(url, "t1", 1)
        others = [CustomEvent(name="other", value=None).model_dump_json().encode()] * 9
        await events.append("t1", others, at=1.0)
        await events.close()

    async with chat_server(store=store, closes_store=True) as address:
        network = Crashing(crash)
        async with ChatClient(address, transport=network, reconnects=[0] * 3) as client:
            events = [event async for event in client.stream("t1", "hello")]
    assert values(events, "other") == []
    assert values(events, "anabranch.missed") == [None]
    assert values(events, "anabranch.node")[-1]["content"][0]["text"] == "You said hello."


async def test_a_run_that_has_ended_with_its_process_is_not_waited_for() -> None:
    """Another process over the same store does not know the run."""
    store = MemoryTrees()
    async with chat_server(hang, store=store) as first, chat_server(hang, store=store) as second:
        network = Moving(httpx2.URL(second).port, drained=False)
        async with ChatClient(first, transport=network, reconnects=[0] * 3) as client:
            reply = await client.say("t1", "/hang")
    assert reply.text == ""
    assert network.requests[:2] == ["POST /agui", "GET /threads/t1/tree"]


class Crashing(Cutting):
    """The first connection breaks after three stored events; then a crash loses some of them."""

    def __init__(self, crash: Callable[[], Awaitable[None]]) -> None:
        super().__init__(3)
        self._crash = crash

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if len(self.requests) == 1:
            await self._crash()
        response = await super().handle_async_request(request)
        if isinstance(response.stream, Cut):
            response.stream.is_drained = True
        return response


class Moving(Cutting):
    """The connection of the first run breaks, at its end or earlier; then another server answers."""

    def __init__(self, port: int | None, *, drained: bool = True) -> None:
        super().__init__(1)
        self._port = port
        self._drained = drained

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.requests:
            request.url = request.url.copy_with(port=self._port)
            return await super().handle_async_request(request)
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, Cut)
        response.stream.is_drained = self._drained
        return response
