"""A recorded question gets a different answer, which starts another line; the line continues like
any call.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from anabranch import Accepted, BranchContext, ToolError, tool
from anabranch.errors import StoreError
from anabranch.tool import Tool
from anabranch.tree import Node, Ref, Result
from tests.agents.memory import MemoryTrees
from tests.chat.recorded import accepted, later
from tests.chat.web import browsing, events_in, message, resume, run, types_of
from tests.durable.stores import Modelled
from tests.recorded.trips import CALL, Seats, played

DONE: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def take(number: int) -> int:
    DONE.append(number)
    return number


def give_back(number: int) -> None:
    DONE.append(-number)


async def ask(ctx: BranchContext, message: str) -> int:
    answer = await ctx.elicit(Seats, message)
    return answer.content.number if isinstance(answer, Accepted) else 0


@tool
async def twice(ctx: BranchContext) -> list[int]:
    """Ask twice, and take the given number each time."""
    first = await ctx.step(take, await ask(ctx, "First?"))
    return [first, await ctx.step(take, await ask(ctx, "Second?"))]


@tool
async def unlucky(ctx: BranchContext) -> int:
    """Take one, ask, and fail for 13."""
    await ctx.step(take, 1, undo=give_back)
    if (number := await ask(ctx, "How many?")) in {3, 13}:
        raise ToolError("an unlucky number")
    return await ctx.step(take, number)


@tool
async def lucky(ctx: BranchContext) -> int:
    if (number := await ask(ctx, "How many?")) == 13:
        raise ToolError("an unlucky number")
    return await ctx.step(take, number)


@asynccontextmanager
async def room(asking: Tool[Any], rounds: int) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of an application that has the tool, and a call of the tool whose answers were 3."""
    store = Modelled()
    try:
        await played(store, replace(later(), tool=asking, arguments={}), rounds)
    except ToolError:
        assert asking is unlucky
    DONE.clear()
    async with browsing(tools=[asking], calls=store, recorded_calls="values") as client:
        yield client


async def answered(client: httpx2.AsyncClient, name: str, step_id: str, number: int) -> Any:
    response = await client.post(f"/calls/{name}/answers", json=accepted(number, step_id))
    assert response.status_code == 200
    return (await client.get(f"/calls/{response.json()['id']}")).json()


async def test_the_next_question_of_a_line_is_answered_on_that_line() -> None:
    async with room(twice, 3) as client:
        line = await answered(client, CALL, "twice/elicit.1", 5)
        assert (line["state"], line["waits_for"]) == ("waiting", ["twice/elicit.2"])
        ended = await answered(client, line["id"], "twice/elicit.2", 6)
        assert (ended["id"], ended["state"], ended["value"]) == (line["id"], "done", [5, 6])
        assert (await client.get(f"/calls/{CALL}")).json()["value"] == [3, 3]
    assert DONE == [5, 6]


async def test_only_the_later_question_may_be_answered_differently() -> None:
    async with room(twice, 3) as client:
        line = await answered(client, CALL, "twice/elicit.2", 6)
        assert line["value"] == [3, 6]
    assert DONE == [6]


async def test_a_line_that_fails_is_shown_with_its_error() -> None:
    async with room(lucky, 2) as client:
        line = await answered(client, CALL, "lucky/elicit.1", 13)
        assert (line["state"], line["error"]) == ("failed", "ToolError: an unlucky number")
    assert DONE == []


async def test_a_call_whose_effects_are_undone_is_not_continued() -> None:
    async with room(unlucky, 2) as client:
        assert (await client.get(f"/calls/{CALL}")).json()["state"] == "failed"
        response = await client.post(f"/calls/{CALL}/answers", json=accepted(4, "unlucky/elicit.1"))
        assert (response.status_code, "undone" in response.json()["error"]) == (409, True)
    assert DONE == []


# -- calls of a conversation ---------------------------------------------------------------------


def numbered(number: Any, step_id: str, **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "action": "accept", "content": {"number": number}, **more}


async def talked(client: httpx2.AsyncClient, said: str, *numbers: int) -> str:
    """Send the message, answer with each number, and return the id of the call."""
    await run(client, message(said))
    for place, number in enumerate(numbers):
        [question] = (await client.get("/threads/t1/pending")).json()
        entry = {"interruptId": question["interrupt_id"], "status": "resolved"}
        body = resume({**entry, "payload": {"number": number}}, run=f"answer {place}")
        await run(client, body)
    first: str = (await client.get("/calls")).json()["calls"][-1]["id"]
    return first


async def again(client: httpx2.AsyncClient, call: str, **body: Any) -> list[dict[str, Any]]:
    """Answer differently, and return the events of the new run."""
    response = await client.post(f"/calls/{call}/answers", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["thread"] == "t1"
    async with client.stream("GET", "/threads/t1/events?after=0") as stream:
        return await events_of_run(stream, response.json()["run_id"])


async def events_of_run(stream: httpx2.Response, run_id: str) -> list[dict[str, Any]]:
    """Return the events from the start of a run to its end."""
    text = ""
    async for piece in stream.aiter_text():
        text += piece
        events = events_in(text[: text.rfind("\n\n") + 1])
        starts = [at for at, each in enumerate(events) if each.get("runId") == run_id]
        if starts and events[-1]["type"] in {"RUN_FINISHED", "RUN_ERROR"}:
            return events[starts[0] :]
    raise AssertionError(text)


async def kinds(client: httpx2.AsyncClient) -> dict[str, list[str]]:
    """Return the kinds of the nodes below each node of the thread that has several."""
    nodes = (await client.get("/threads/t1/tree")).json()["nodes"]
    below: dict[str, list[str]] = {}
    for node in nodes:
        below.setdefault(node["parent_id"], []).append(node["kind"])
    return {parent: found for parent, found in below.items() if len(found) > 1}


@asynccontextmanager
async def talking(**options: Any) -> AsyncGenerator[httpx2.AsyncClient]:
    options = {"tools": [twice, unlucky, lucky], "recorded_calls": "values", **options}
    async with browsing(calls=Modelled(), **options) as client:
        yield client


async def test_a_conversations_call_continues_on_another_line() -> None:
    async with talking() as client:
        call = await talked(client, "/twice", 3, 4)
        assert DONE == [3, 4]
        events = await again(client, call, **numbered(5, "twice/elicit.1"))
        [asked] = events[-1]["outcome"]["interrupts"]
        assert asked["message"] == "Second?"
        assert DONE == [3, 4, 5]
        assert list((await kinds(client)).values()) == [["answer", "answer"]]
        lines = (await client.get(f"/calls/{call}")).json()["lines"]
        entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"number": 6}}
        await run(client, resume(entry, run="continues"))
        assert DONE == [3, 4, 5, 6]
        [line] = lines
        assert (await client.get(f"/calls/{line}")).json()["value"] == [5, 6]
        # On that line, the question that both lines have is answered again.
        await again(client, line, **numbered(7, "twice/elicit.1"))
        assert DONE == [3, 4, 5, 6, 7]
        assert list((await kinds(client)).values()) == [["answer", "answer", "answer"]]


async def test_a_repeated_different_answer_changes_nothing() -> None:
    async with talking() as client:
        call = await talked(client, "/lucky", 3)
        await again(client, call, **numbered(5, "lucky/elicit.1"))
        before = (await client.get("/threads/t1/tree")).json()["nodes"]
        for number in (5, 3):
            events = await again(client, call, **numbered(number, "lucky/elicit.1"))
            assert types_of(events) == ["RUN_STARTED", "RUN_FINISHED"]
        assert (await client.get("/threads/t1/tree")).json()["nodes"] == before
    assert DONE == [3, 5]


@pytest.mark.parametrize(
    ("said", "numbers", "body", "status", "error"),
    [
        pytest.param("/twice", [3], numbered(1, "twice/elicit.2"), 409, "still open", id="open"),
        pytest.param("/lucky", [3], numbered(1, "lucky/no"), 404, "no question", id="unknown"),
        pytest.param("/lucky", [3], numbered("x", "lucky/elicit.1"), 422, "number", id="misfit"),
        pytest.param(
            "/lucky", [3], {**numbered(1, "lucky/elicit.1"), "action": "buy"}, 422, "action",
            id="malformed",
        ),
        pytest.param("/unlucky", [13], numbered(4, "unlucky/elicit.1"), 409, "undone", id="undone"),
    ],
)  # fmt: skip
async def test_a_question_that_cannot_be_answered_differently_is_refused(
    said: str, numbers: list[int], body: dict[str, Any], status: int, error: str
) -> None:
    async with talking() as client:
        call = await talked(client, said, *numbers)
        done = list(DONE)
        response = await client.post(f"/calls/{call}/answers", json=body)
        assert (response.status_code, error in response.text) == (status, True)
        assert await kinds(client) == {}
    assert done == DONE


async def test_a_different_answer_that_was_not_stored_is_reported_to_the_user() -> None:
    store = Away()
    async with talking(store=store) as client:
        call, body = await talked(client, "/lucky", 3), numbered(5, "lucky/elicit.1")
        store.is_away = True
        response = await client.post(f"/calls/{call}/answers", json=body)
        assert (response.status_code, "Try again" in response.json()["error"]) == (503, True)
        store.is_away = False
        tree = (await client.get("/threads/t1/tree")).json()
        assert (tree["running"], tree["ends"]) == (False, {})
        await again(client, call, **body)
    assert DONE == [3, 5]


class Away(MemoryTrees):
    is_away = False

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        if self.is_away and any(each.kind == "answer" for each in nodes):
            raise StoreError("The store is away.")
        await super().append(nodes, results=results, refs=refs)


async def test_a_different_answer_is_refused_while_a_turn_runs() -> None:
    begun, continues = asyncio.Event(), asyncio.Event()

    @tool
    async def hang(ctx: BranchContext) -> None:
        begun.set()
        await continues.wait()

    async with talking(tools=[lucky, hang]) as client:
        call = await talked(client, "/lucky", 3)
        running = asyncio.create_task(run(client, message("/hang", run="long")))
        await begun.wait()
        body = numbered(4, "lucky/elicit.1")
        response = await client.post(f"/calls/{call}/answers", json=body)
        assert (response.status_code, "running" in response.text) == (409, True)
        continues.set()
        await running


async def test_a_call_of_another_users_conversation_can_be_read_only() -> None:
    store, calls = MemoryTrees(), Modelled()

    async def ann(_: Any) -> str:
        return "ann"

    async with browsing(tools=[lucky], store=store, calls=calls, authenticate=ann) as owner:
        await run(owner, message("/lucky"))
        [question] = (await owner.get("/threads/t1/pending")).json()
        entry = {"interruptId": question["interrupt_id"], "status": "resolved"}
        await run(owner, resume({**entry, "payload": {"number": 3}}))
    shown: dict[str, Any] = {"store": store, "calls": calls, "recorded_calls": "values"}
    async with browsing(tools=[lucky], **shown) as client:
        [listed] = (await client.get("/calls")).json()["calls"]
        call = (await client.get(f"/calls/{listed['id']}")).json()
        assert (call["thread"], call["answerable"], call["value"]) == (None, False, 3)
        for trees in (None, store):  # and if its conversation is not in this store
            shown["store"] = trees
            async with browsing(tools=[lucky], **shown) as other:
                body = numbered(4, "lucky/elicit.1")
                response = await other.post(f"/calls/{listed['id']}/answers", json=body)
                assert (response.status_code, "another user" in response.text) == (404, True)
    assert DONE == [3]
