"""Access to the web application, and its replies to requests that it refuses."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from anabranch.chat import make_chat_app
from anabranch.chat._web import requests
from anabranch.chat._web.page_files import base
from anabranch.errors import StoreError
from anabranch.tree import Thread
from tests.agents.memory import MemoryTrees
from tests.chat.web import browsing, message, model, run


async def test_a_page_of_this_machine_is_served() -> None:
    async with browsing() as client:
        origin = {"Origin": str(client.base_url).rstrip("/")}
        assert (await client.post("/threads", json={}, headers=origin)).status_code == 201
        response = await client.get("/")
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
        assert "unsafe" not in response.headers["content-security-policy"]


async def test_every_path_requires_the_token() -> None:
    async with browsing(token="secret words") as client:
        paths = ["/", "/threads", "/agui", f"/{base()}/app.mjs", "/threads/x/events"]
        for path in paths:
            response = await client.get(path)
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        for wrong in [
            "Bearer secret",
            "Basic secret words",
            "Bearer  secret words",
            "Bearer sécret",
        ]:
            refused = await client.get("/threads", headers={b"Authorization": wrong.encode()})
            assert refused.status_code == 401
        bearer = {"Authorization": "Bearer secret words"}
        assert (await client.get("/threads", headers=bearer)).status_code == 200


async def test_the_page_exchanges_its_token_for_a_cookie_once() -> None:
    async with browsing(token="secret words") as client:
        assert (await client.get("/threads?token=secret+words")).status_code == 401
        response = await client.get("/?token=secret+words")
        assert (response.status_code, response.headers["location"]) == (303, "/")
        cookie = response.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert (await client.get("/threads")).status_code == 200


async def test_a_request_that_is_too_large_is_refused() -> None:
    async with browsing() as client:
        response = await client.post("/threads", json={"title": "x" * 5_000_000})
        assert response.status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(60):
                yield b" " * 100_000

        headers = {"Content-Type": "application/json"}
        response = await client.post("/threads", content=chunks(), headers=headers)
        assert response.status_code == 413


async def test_a_request_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 0.05)
    async with browsing() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        head = "POST /threads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_request_that_does_not_fit_is_refused_in_a_sentence() -> None:
    cases = [
        ("/threads", "{", 400),
        ("/threads", "[" * 5_000, 400),
        ("/threads", '{"id": "a b"}', 422),
        ("/threads", '{"unknown": 1}', 422),
        ("/threads/t1/answers", '{"interrupt_id": "x", "action": "maybe"}', 422),
        ("/threads/t1/answers", '{"interrupt_id": "x", "action": "accept"}', 404),
        ("/threads/none/answers", '{"interrupt_id": "x", "action": "accept"}', 404),
        ("/threads/t1/labels", '{"node_id": "x", "label": "a"}', 404),
        ("/agui", '{"threadId": "t1"}', 422),
    ]
    async with browsing() as client:
        await client.post("/threads", json={"id": "t1"})
        headers = {"Content-Type": "application/json"}
        for path, body, status in cases:
            response = await client.post(path, content=body.encode(), headers=headers)
            assert response.status_code == status, (path, body[:50])
            assert response.json()["error"].endswith(".")
        plain = {"Content-Type": "text/plain"}
        assert (await client.post("/threads", headers=plain, content=b"{}")).status_code == 415


async def test_the_first_of_two_simultaneous_answers_is_accepted() -> None:
    async with browsing() as client:
        await run(client, message("reserve"))
        [question] = (await client.get("/threads/t1/pending")).json()

        async def answer(row: int) -> int:
            body = {"interrupt_id": question["interrupt_id"], "action": "accept"}
            content = {**body, "content": {"row": row}}
            return (await client.post("/threads/t1/answers", json=content)).status_code

        assert sorted(await asyncio.gather(answer(1), answer(2))) == [200, 409]
        assert sorted(await asyncio.gather(answer(1), answer(2))) == [200, 409]


async def test_a_store_that_fails_is_not_described_to_the_page() -> None:
    class Broken(MemoryTrees):
        async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
            raise StoreError("no route to db.internal")

        async def create_thread(self, thread: Thread) -> None:
            raise StoreError("no space on db.internal")

    async with browsing(store=Broken()) as client:
        for method, verb in (("GET", "read"), ("POST", "change")):
            response = await client.request(
                method, "/threads", json={} if method == "POST" else None
            )
            assert response.status_code == 503
            error = f"The server cannot {verb} its conversations now. Try again."
            assert response.json() == {"error": error}


async def test_shown_calls_have_no_journal() -> None:
    async with browsing() as client:
        events = await run(client, message("reserve"))
        shown = [(await client.get(f"/threads/t1/{what}")).text for what in ("tree", "pending")]
    for text in [json.dumps(events), *shown]:
        assert '"state"' not in text
        assert "Which seat?" in text


async def test_a_text_names_one_allowed_host() -> None:
    async with browsing(hosts="chat.example.org") as client:
        statuses = [
            (await client.get("/threads", headers={"host": host})).status_code
            for host in ("chat.example.org", "127.0.0.1", "c")
        ]
    assert statuses == [200, 421, 421]


@pytest.mark.parametrize("host", ["https://chat.example.org", "chat.example.org:8080", "*", ""])
def test_a_host_with_more_than_its_name_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"is not the name of a host\. Write the name alone"):
        make_chat_app(MemoryTrees(), model(), hosts=[host])


@pytest.mark.parametrize("token", ["", " "])
def test_an_empty_token_is_refused(token: str) -> None:
    """Every request could present such a token, for example from an empty variable."""
    with pytest.raises(ValueError, match="The token is empty"):
        make_chat_app(MemoryTrees(), model(), token=token)
