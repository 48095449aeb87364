"""A saga client repeats a request whose connection was lost, and every effect happens once."""

from typing import Any

import pytest
from mcp import Client, MCPError

from anabranch.mcp import SagaClient
from tests.mcp.harness import MODERN, asgi, text_of
from tests.mcp.lossy import KINDS, Lossy, booking
from tests.mcp.waits import NO_PAUSES, repeat_at_once
from tests.sagas.harness import User


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    repeat_at_once(monkeypatch)


def user() -> User:
    return User(lambda _step, _message: {"n": 2})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1, 2)])
async def test_a_saga_client_repeats_its_requests(kind: str, lost: tuple[int, ...]) -> None:
    effects: list[str] = []
    app, asked = Lossy(booking(effects, "memory:"), kind, *lost), user()
    async with asgi(app) as url:
        saga = SagaClient(lambda: Client(url, mode=MODERN), asked)
        result = await saga.call_tool("book")
    assert text_of(result) == "2 more"
    assert effects == ["one", "more"]
    assert asked.asked == ["book/elicit.1"]
    assert app.called == 2 + len(lost)


async def test_a_connected_client_repeats_where_its_connection_outlives_the_reply() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, "memory:"), "text/event-stream", 0)
    async with asgi(app) as url, Client(url, mode=MODERN) as client:
        assert text_of(await SagaClient(client, user()).call_tool("book")) == "2 more"
    assert effects == ["one", "more"]


async def test_a_saga_client_gives_up_when_every_reply_is_lost() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, "memory:"), "text/event-stream", *range(9))
    async with asgi(app) as url:
        with pytest.raises(MCPError, match="ended without a response"):
            await SagaClient(lambda: Client(url, mode=MODERN), user()).call_tool("book")
    assert app.called == 1 + len(NO_PAUSES)
    assert effects == ["one"]


async def test_a_saga_client_repeats_no_request_without_a_store() -> None:
    effects: list[str] = []
    app = Lossy(booking(effects, None), "text/event-stream", 0)
    async with asgi(app) as url:
        with pytest.raises(MCPError, match="ended without a response"):
            await SagaClient(lambda: Client(url, mode=MODERN), user()).call_tool("book")
    assert effects == ["one"]


async def test_an_answerer_that_fails_is_no_lost_connection() -> None:
    effects: list[str] = []

    def fails(*_: str) -> Any:
        raise ConnectionError("no model")

    app = Lossy(booking(effects, "memory:"), KINDS[0])
    async with asgi(app) as url:
        with pytest.raises(ExceptionGroup):
            await SagaClient(lambda: Client(url, mode=MODERN), User(fails)).call_tool("book")
    assert app.called == 1
