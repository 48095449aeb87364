"""The calls page: the records that a browser receives, and another answer to one of their questions."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from anabranch.chat import make_chat_app
from tests.agents.memory import MemoryTrees
from tests.chat.recorded import accepted, later
from tests.chat.web import browsing, message, model, reserve, run
from tests.durable.stores import Modelled
from tests.recorded.trips import CALL, DONE, played, trip


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@asynccontextmanager
async def room(
    shows: Any = "values", *, rounds: int = 2, tools: Any = (trip, reserve)
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of an application over a store in which a server has recorded a call."""
    store = Modelled()
    if rounds:
        await played(store, later(), rounds)
    async with browsing(tools=tools, calls=store, recorded_calls=shows) as client:
        yield client


async def nobody(_: Any) -> None:
    """Admit no user."""


async def test_the_calls_page_exists_only_when_switched_on() -> None:
    async with room(None) as client:
        assert (await client.get("/rooms")).json() == []
        assert (await client.get("/calls")).status_code == 404
        assert (await client.get(f"/calls/{CALL}")).status_code == 404
    async with room() as client:
        assert (await client.get("/rooms")).json() == ["calls"]


def test_a_wrong_choice_of_shown_calls_is_refused() -> None:
    with pytest.raises(ValueError, match="shows every user all calls"):
        make_chat_app(
            MemoryTrees(), model(), calls=Modelled(), recorded_calls="outline", authenticate=nobody
        )
    wrong: Any = "everything"
    with pytest.raises(ValueError, match="'everything'; it is 'outline'"):
        make_chat_app(MemoryTrees(), model(), calls=Modelled(), recorded_calls=wrong)


async def test_calls_are_listed_in_pages() -> None:
    async with room() as client:
        listed = (await client.get("/calls?tool=trip&status=done")).json()
        assert (listed["shows"], [each["id"] for each in listed["calls"]]) == ("values", [CALL])
        assert (await client.get(f"/calls?after={CALL}&limit=1")).json()["calls"] == []
        assert (await client.get("/calls?tool=other")).json()["calls"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("status=odd", 422),
        ("limit=0", 422),
        ("limit=x", 422),
        ("limit=201", 422),
        ("after=no", 404),
    ],
)
async def test_a_wrong_query_is_refused_in_a_sentence(query: str, status: int) -> None:
    async with room() as client:
        response = await client.get(f"/calls?{query}")
        assert response.status_code == status
        assert response.json()["error"].endswith(".")


async def test_values_are_shown_where_they_are_switched_on() -> None:
    async with room() as client:
        call = (await client.get(f"/calls/{CALL}")).json()
        assert call["value"] == "Graz-1: 3, Yes. fine"
        assert (call["thread"], call["answerable"], call["shows"]) == (None, True, "values")
        assert (await client.get("/calls/nothing")).status_code == 404


async def test_an_outline_shows_no_value_and_answers_nothing() -> None:
    async with room("outline") as client:
        call = await client.get(f"/calls/{CALL}")
        assert "Graz" not in call.text
        assert "How many" not in call.text
        assert call.json()["answerable"] is False
        assert "principal" not in (await client.get("/calls")).json()["calls"][0]
        refused = await client.post(f"/calls/{CALL}/answers", json=accepted(4))
        assert refused.status_code == 403


async def test_a_large_value_is_cut() -> None:
    store = Modelled()
    await played(store, later(city="G" * 30_000), 1)
    async with browsing(tools=[trip], calls=store, recorded_calls="values") as client:
        call = (await client.get(f"/calls/{CALL}")).json()
    assert call["arguments"].endswith("characters)")
    assert len(call["arguments"]) < 21_000


async def test_another_answer_begins_another_line() -> None:
    async with room() as client:
        DONE.clear()
        begun = await client.post(f"/calls/{CALL}/answers", json=accepted(5))
        assert begun.status_code == 200
        name = begun.json()["id"]
        line = (await client.get(f"/calls/{name}")).json()
        assert (line["state"], line["value"]) == ("done", "Graz-1: 5, Yes. fine")
        assert line["lines"] == [CALL]
        first = (await client.get(f"/calls/{CALL}")).json()
        assert (first["value"], first["lines"]) == ("Graz-1: 3, Yes. fine", [name])
        again = await client.post(f"/calls/{CALL}/answers", json=accepted(5))
        assert again.json()["id"] == name
    assert DONE == []  # effects before the question do not run again


async def test_the_same_answer_is_the_same_line() -> None:
    async with room() as client:
        assert (await client.post(f"/calls/{CALL}/answers", json=accepted(3))).json()["id"] == CALL


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (accepted("many"), 422, "The answer does not fit the question's form: number"),
        (accepted(1, "unknown"), 404, "ended with the question 'unknown'"),
        ({"step_id": "seats", "action": "maybe"}, 422, "does not fit"),
    ],
    ids=["field", "question", "action"],
)
async def test_a_value_that_is_no_answer_is_refused_by_the_calls_room(
    body: Any, status: int, sentence: str
) -> None:
    async with room() as client:
        response = await client.post(f"/calls/{CALL}/answers", json=body)
        assert response.status_code == status
        assert sentence in response.json()["error"]


async def test_a_question_that_its_client_can_answer_is_only_shown() -> None:
    async with room(rounds=1) as client:
        response = await client.post(f"/calls/{CALL}/answers", json=accepted(1))
        assert (response.status_code, "still open" in response.text) == (409, True)


async def test_a_call_of_a_missing_tool_is_only_shown() -> None:
    async with room(tools=[reserve]) as client:
        assert (await client.get(f"/calls/{CALL}")).json()["answerable"] is False
        response = await client.post(f"/calls/{CALL}/answers", json=accepted(1))
        assert (response.status_code, "'trip'" in response.text) == (404, True)


async def test_a_call_of_the_chat_leads_to_its_conversation() -> None:
    async with room(rounds=0) as client:
        await run(client, message("reserve"))
        (listed,) = (await client.get("/calls")).json()["calls"]
        call = (await client.get(f"/calls/{listed['id']}")).json()
        assert (call["thread"], call["tool"]) == ("t1", "reserve")
