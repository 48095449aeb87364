"""Owners of conversations: for every other caller a conversation does not exist, whatever the
caller sends.
"""

import logging
from typing import Any

import httpx2
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from anabranch.chat import RateLimits, make_chat_app
from anabranch.chat._web.thread_log import shown_id
from anabranch.messages import SampleRequest
from anabranch.models import ModelError
from anabranch.stores import open_stores
from anabranch.testing import MockModel
from anabranch.tree import Thread, tree_to_json
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.chat.callers import ANN, BO, known
from tests.chat.web import (
    browsing,
    decide,
    events_in,
    message,
    model,
    reserve,
    resume,
    run,
    serving,
)
from tests.owners.web import routes_of
from tests.patience import PATIENCE


def app_of(**options: Any) -> Any:
    return make_chat_app(MemoryTrees(), model(), [reserve], **options)


ROUTES = [each.split(" ", 1) for each in routes_of(app_of().routes)]


async def begin(client: httpx2.AsyncClient) -> None:
    """Let Ann start a conversation in which a question is open."""
    client.headers.update(ANN)
    await run(client, message("reserve", thread="anns"))


def overloaded(request: SampleRequest) -> Any:
    return ModelError("Overloaded.") if heard(request) == "fail" else decide(request)


async def threads_of_a_retry(client: httpx2.AsyncClient, thread: str) -> set[str]:
    """Let a turn fail twice; return the threads that the events of the retry name."""
    await run(client, message("fail", thread=thread, run="failing"))
    tree = (await client.get(f"/threads/{thread}/tree")).json()
    [ended] = tree["ends"]
    response = await client.post(f"/threads/{thread}/retry", json={"node_id": ended})
    assert response.status_code == 202
    lines: list[str] = []
    place = f"/threads/{thread}/events?after={tree['position']}"
    async with client.stream("GET", place) as events:
        async for line in events.aiter_lines():
            lines.append(line)
            if '"RUN_ERROR"' in line:
                break
    return {each["threadId"] for each in events_in("\n".join(lines)) if "threadId" in each}


async def test_two_users_can_choose_the_same_conversation_id(url: str) -> None:
    """Otherwise a refusal would reveal the ids of other users, and their ids could not be used."""
    calls, trees = open_stores(url)
    options: dict[str, Any] = {"replies": MockModel(overloaded), "authenticate": known}
    async with browsing(store=trees, calls=calls, **options) as client:
        await begin(client)
        anns = (await client.get("/threads/anns/tree")).json()
        client.headers.update(BO)
        events = await run(client, message("reserve", thread="anns"))
        assert {each["threadId"] for each in events if "threadId" in each} == {"anns"}
        [question] = (await client.get("/threads/anns/pending")).json()
        entry = {
            "interruptId": question["interrupt_id"],
            "status": "resolved",
            "payload": {"row": 9},
        }
        await run(client, resume(entry, thread="anns"))
        bos = (await client.get("/threads/anns/tree")).json()
        assert (bos["thread"], bos["nodes"][-1]["content"][0]["text"]) == ("anns", "Done.")
        assert await threads_of_a_retry(client, "anns") == {"anns"}
        assert [each["id"] for each in (await client.get("/threads")).json()] == ["anns"]
        assert (await client.post("/threads", json={"id": "anns"})).status_code == 409
        client.headers.update(ANN)
        assert (await client.get("/threads/anns/tree")).json() == anns
        stored = [each.id for each in await trees.threads(9)]
        assert [shown_id(each) for each in stored] == ["anns", "anns"]
        client.headers.update({"X-User": "cy"})
        assert (await client.get(f"/threads/{stored[0]}/tree")).status_code == 404
    await trees.close()


async def test_a_thread_without_an_owner_is_not_a_principals_thread() -> None:
    store = MemoryTrees()
    await store.create_thread(Thread("old", 1.0))
    await store.create_thread(Thread("anns", 2.0, owner="ann"))
    cases: list[tuple[dict[str, Any], dict[str, str], list[str]]] = [
        ({}, {}, ["old"]),
        ({"token": "secret words"}, {"Authorization": "Bearer secret words"}, ["old"]),
        ({"authenticate": known}, ANN, ["anns"]),
        ({"authenticate": known}, BO, []),
    ]
    for options, headers, listed in cases:
        async with browsing(store=store, **options) as client:
            client.headers.update(headers)
            found = [each["id"] for each in (await client.get("/threads")).json()]
            assert found == listed
            for thread in ("old", "anns"):
                status = (await client.get(f"/threads/{thread}/tree")).status_code
                assert status == (200 if thread in listed else 404)


async def test_an_owner_is_in_the_calls_of_their_tools_and_not_in_exports() -> None:
    calls, trees = open_stores("memory:")
    async with browsing(store=trees, calls=calls, authenticate=known) as client:
        await begin(client)
        exported = (await client.get("/threads/anns/tree")).text
        [question] = (await client.get("/threads/anns/pending")).json()
        record = await calls.find(question["id"]["call_id"])
        assert record is not None
        assert (record.principal, record.thread) == ("ann", "anns")
        assert [record.node] == [
            node.id for node in (await trees.tree("anns")).nodes if node.tool_uses
        ]
        assert tree_to_json(await trees.tree("anns")).keys() == {"thread", "refs", "nodes"}
    assert "owner" not in exported


async def test_an_unknown_user_is_admitted_nowhere() -> None:
    async with browsing(authenticate=known) as client:
        for method, path in ROUTES:
            response = await client.request(method, path.replace("{id}", "x"))
            assert response.status_code == 401


async def test_a_hook_may_answer_itself_and_must_return_a_name() -> None:
    async def login(request: Request) -> str | None:
        del request
        raise HTTPException(303, headers={"Location": "/login"})

    async with browsing(authenticate=login) as client:
        response = await client.get("/threads")
        assert (response.status_code, response.headers["location"]) == (303, "/login")

    async def wrong(request: Request) -> str | None:
        return ""

    async with browsing(authenticate=wrong) as client:
        assert (await client.get("/threads")).status_code == 401
    with pytest.raises(ValueError, match="token= or authenticate="):
        app_of(token="x", authenticate=known)
    users: Any = {"key": "ann"}
    with pytest.raises(TypeError, match="authenticate= takes a function of the request; it was"):
        app_of(authenticate=users)


async def test_a_hook_may_be_a_plain_function() -> None:
    def user(request: Request) -> str | None:
        return request.headers.get("x-user")

    async with browsing(authenticate=user) as client:
        assert (await client.get("/threads")).status_code == 401
        assert (await client.get("/threads", headers=ANN)).status_code == 200


async def test_a_hook_that_returns_no_text_is_refused() -> None:
    def number(request: Request) -> int:
        return 7

    app = app_of(authenticate=number)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        with pytest.raises(
            TypeError, match=r"name of the user as a text, or None; it was given the int 7"
        ):
            await client.get("/threads")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "null"}, 403),
    ],
    ids=str,
)
async def test_other_sites_reach_no_route(headers: dict[str, str], status: int) -> None:
    """The cookie, which a browser would send along, does not help another site."""
    asked: list[str] = []

    async def known_by_cookie(request: Request) -> str | None:
        asked.append(request.url.path)
        return "ann"

    async with browsing(authenticate=known_by_cookie) as client:
        for method, path in ROUTES:
            place = path.replace("{id}", "x")
            response = await client.request(method, place, headers=headers, json={})
            assert response.status_code == status, path
    assert asked == []


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


async def test_each_caller_has_a_rate() -> None:
    now = Clock()
    limits = RateLimits(requests=10, runs=2)
    async with browsing(authenticate=known, rates=limits, now=now) as client:
        client.headers.update(ANN)
        for number in range(2):
            await run(client, message("hello", run=f"r{number}"))
        refused = await client.post("/agui", json=message("hello", run="r3"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        assert refused.json() == {"error": "Too many messages and answers. Try again in 30 s."}
        now.time += 30
        await run(client, message("hello", run="r3"))
        client.headers.update(BO)
        for _ in range(10):
            assert (await client.get("/tools")).status_code == 200
        refused = await client.get("/tools")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "6")
        assert "frame-ancestors" in refused.headers["content-security-policy"]
        client.headers.update(ANN)
        assert (await client.get("/tools")).status_code == 200


async def test_guesses_of_a_token_are_counted_by_address() -> None:
    async with browsing(token="secret words", rates=RateLimits(requests=3), now=Clock()) as client:
        wrong = {"Authorization": "Bearer guess"}
        found = [(await client.get("/threads", headers=wrong)).status_code for _ in range(5)]
        assert found == [401, 401, 401, 429, 429]


@pytest.mark.parametrize("most", [0, -1, 1.5, True])
def test_a_rate_is_a_positive_number(most: Any) -> None:
    with pytest.raises(ValueError, match="must be a positive number"):
        RateLimits(runs=most)


@pytest.mark.parametrize("rates", [10, {"runs": 10}, RateLimits])
def test_rates_of_another_kind_are_refused_when_the_application_is_made(rates: Any) -> None:
    wanted = r"rates= takes RateLimits\(requests=…, runs=…\); it was given"
    with pytest.raises(TypeError, match=wanted):
        app_of(rates=rates)


async def test_messages_and_tokens_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log has no messages even at the lowest level, and with the server's own record of requests."""
    for name in (
        None,
        "uvicorn.access",
        "uvicorn.error",
    ):  # other servers in this process set their own
        caplog.set_level(logging.DEBUG, name)
    app = make_chat_app(MemoryTrees(), model(), [reserve], token="sesame")
    log = {"version": 1, "disable_existing_loggers": False}
    async with (
        serving(app, log_config=log, access_log=True) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        assert (await client.get("/?token=sesame")).status_code == 303
        assert (await client.get("/threads?token=sesame&limit=9")).status_code == 200
        await run(client, message("reserve"))
        [question] = (await client.get("/threads/t1/pending")).json()
        answer: dict[str, Any] = {"interrupt_id": question["interrupt_id"], "action": "accept"}
        for content in ({"row": 77, "note": "swordfish"}, {"row": 7, "note": "swordfish"}):
            await client.post("/threads/t1/answers", json={**answer, "content": content})
        await client.post("/agui", json=message("swordfish", run="r3"))
    of_server = [each for each in caplog.records if not each.name.startswith("http")]
    shown = "\n".join(each.getMessage() + str(each.exc_text) for each in of_server)
    assert '"POST /threads/t1/answers HTTP/1.1" 200' in shown
    assert '"GET /threads?limit=9 HTTP/1.1" 200' in shown
    for secret in ("sesame", "swordfish", "Which seat?"):
        assert secret not in shown
