"""The memory page: the memories that a browser receives, their owners, and how they are forgotten."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2

from anabranch.memory import Draft, Provenance, ReasoningBank, Scopes
from anabranch.stores import open_memory_store
from anabranch.testing import ManualClock
from tests.chat.web import browsing


@asynccontextmanager
async def room() -> AsyncGenerator[tuple[httpx2.AsyncClient, list[str]]]:
    """Yield a client of an application with two memories for each of two users, and the ids of Ann's."""
    store = open_memory_store("memory:")

    def memory_of(principal: str | None) -> ReasoningBank:
        scopes = Scopes(project=principal or "ann", team="theirs")
        return ReasoningBank(store, scopes=scopes, clock=ManualClock(1000.0))

    for name in ("bo", "ann"):
        bank = memory_of(name)
        await bank.record(a_draft(f"Locks of {name}", "Ask first."), task="Open the door")
        learned = Provenance(source="distilled", branch_id="br_1", outcome="failure")
        await bank.add(await bank.to_memory(a_draft("Keys", f"Of {name}."), provenance=learned))
    ids = [memory.id for memory in await memory_of("ann").newest()]
    async with browsing(memory=memory_of) as client:
        yield client, ids
    await store.close()


def a_draft(title: str, content: str) -> Draft:
    return Draft(title=title, description=f"When it is about {title}", content=content)


async def test_the_memory_page_exists_only_with_a_memory() -> None:
    async with browsing() as client:
        assert (await client.get("/rooms")).json() == []
        assert (await client.get("/memories")).status_code == 404
    async with room() as (client, _):
        assert (await client.get("/rooms")).json() == ["memory"]


async def test_memories_are_listed_searched_and_shown_with_their_origin() -> None:
    async with room() as (client, [keys, locks]):
        listed = (await client.get("/memories")).json()
        assert [each["id"] for each in listed] == [keys, locks]
        assert [each["id"] for each in (await client.get("/memories?query=lock")).json()] == [locks]
        assert (await client.get("/memories?query=quicksand")).json() == []

        memory = (await client.get(f"/memories/{keys}")).json()
        assert (memory["content"], memory["scope"], memory["confidence"]) == (
            "Of ann.",
            "project",
            0.75,
        )
        assert memory["provenance"] == {
            "source": "distilled",
            "branch_id": "br_1",
            "outcome": "failure",
        }
        assert (memory["helpful"], memory["created_at"], memory["writable"]) == (0, 1000.0, True)
        assert (await client.get(f"/memories/{locks}")).json()["task"] == "Open the door"


async def test_a_memory_is_forgotten_for_good() -> None:
    async with room() as (client, [keys, locks]):
        assert (await client.delete(f"/memories/{keys}")).json() == {"forgotten": keys}
        assert [each["id"] for each in (await client.get("/memories")).json()] == [locks]
        for response in (
            await client.get(f"/memories/{keys}"),
            await client.delete(f"/memories/{keys}"),
        ):
            assert (response.status_code, response.json()["error"]) == (
                404,
                f"Unknown memory {keys!r}.",
            )


async def test_a_query_that_is_too_long_is_refused() -> None:
    async with room() as (client, _):
        response = await client.get("/memories", params={"query": "x" * 1_001})
        assert (response.status_code, response.json()["error"]) == (
            422,
            "A query has at most 1000 characters.",
        )
