"""The web application asks the questions of running servers' tools."""

import json
import re
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool
from anabranch.agents import RemoteTools
from tests.agents.memory import MemoryTrees
from tests.chat.web import browsing, message, resume, run
from tests.mcp.harness import http, serving

ANSWERS = "/threads/t1/answers"


class Seats(BaseModel):
    n: int = Field(title="Number", ge=1)


@tool
async def book(ctx: BranchContext, flight: str = "AB1") -> str:
    await ctx.log("info", f"looking at {flight}")
    answer = await ctx.elicit(Seats, "How many?")
    return f"{answer.content.n} on {flight}" if isinstance(answer, Accepted) else answer.action


async def pending(client: httpx2.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/threads/t1/pending")).json()
    return found


def accepting(question: dict[str, Any], **content: Any) -> dict[str, Any]:
    return resume(
        {"interruptId": question["interrupt_id"], "status": "resolved", "payload": content}
    )


async def shown(client: httpx2.AsyncClient, events: object) -> str:
    """Return the whole conversation as a browser reads it."""
    read = [(await client.get(f"/threads/t1/{each}")).text for each in ("tree", "pending")]
    return f"{read} {events}"


@pytest.mark.parametrize("era", ["handshake", "auto"])
async def test_a_servers_question_is_a_form_of_the_page(era: Any) -> None:
    store = MemoryTrees()
    async with (
        http(serving(book)) as url,
        RemoteTools(url, era=era) as remote,
        browsing(store=store, tools=[remote]) as client,
    ):
        events = await run(client, message("/book flight=OS2"))
        assert any("looking at OS2" in json.dumps(event) for event in events)
        [question] = await pending(client)
        assert question["message"] == "How many?"
        assert question["params"] == {"flight": "OS2"}
        assert question["schema"]["properties"]["n"]["title"] == "Number"
        answer = {"interrupt_id": question["interrupt_id"], "action": "accept"}
        refused = await client.post(ANSWERS, json={**answer, "content": {"n": 0}})
        assert refused.status_code == 422
        seen = await shown(client, events)
        resumed = await run(client, accepting(question, n=2))
        [asked] = [each for each in (await store.tree("t1")).nodes if each.kind == "question"]
        [state] = re.findall(r'"(?:state|live)":"([^"]+)"', str(asked.data["state"]))
        assert state not in seen
        assert "2 on OS2" in str(resumed)


async def test_a_servers_question_is_answered_after_a_restart() -> None:
    store = MemoryTrees()
    async with http(serving(book)) as url:
        async with RemoteTools(url) as remote, browsing(store=store, tools=[remote]) as client:
            await run(client, message("/book"))
        async with RemoteTools(url) as remote, browsing(store=store, tools=[remote]) as client:
            [question] = await pending(client)
            assert "3 on AB1" in str(await run(client, accepting(question, n=3)))


async def test_another_message_cancels_a_servers_question() -> None:
    async with (
        http(serving(book)) as url,
        RemoteTools(url, era="handshake") as remote,
        browsing(tools=[remote]) as client,
    ):
        await run(client, message("/book"))
        await run(client, message("never mind", run="r2"))
        assert await pending(client) == []
        assert '"text":"cancel"' in (await client.get("/threads/t1/tree")).text.replace(" ", "")
