"""A page reads a reply as the model writes it, while the worker and the web process die."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chat.fleet import Fleet
from tests.chat.web import message, types_of
from tests.models.harness import ANTHROPIC, FIRST_WORDS
from tests.models.provider_server import Say, provider_server
from tests.postgres import Server

LOST, WHOLE = "It will rain in Rome.", "The sun shines in Rome."
TEXT = "TEXT_MESSAGE_CONTENT"


class Page:
    """The events that a page has seen of a thread, over all its connections.

    Attributes:
        seen: the id of the last event so far.
        numbers: the numbers of the events so far.
        events: all events so far.
        messages: the unfinished messages, as the page shows them.
        shown: the finished messages, as the page showed them.
    """

    def __init__(self) -> None:
        self.seen = ""
        self.numbers: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.messages: dict[str, str] = {}
        self.shown: list[str] = []
        self._changed = asyncio.Event()

    async def follow(self, client: httpx2.AsyncClient) -> None:
        """Read the events after the last one seen, as an ``EventSource`` does, until a run ends.

        Raises:
            TransportError: the process has died.
        """
        seen = {"Last-Event-ID": self.seen} if self.seen else {}
        path, given = "/threads/t1/events?after=0", ""
        async with client.stream("GET", path, headers=seen) as response:
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    given = value
                elif name == "data":
                    self._add(given, json.loads(value))
                    if self.events[-1]["type"] in {"RUN_FINISHED", "RUN_ERROR"}:
                        return

    async def until(self, holds: Callable[[list[str]], bool]) -> None:
        """Wait until ``holds`` is true of the types of the events so far."""
        while not holds(types_of(self.events)):
            self._changed.clear()
            await self._changed.wait()

    def _add(self, given: str, event: dict[str, Any]) -> None:
        self.seen = given
        self.numbers.append(int(given.partition("-")[0]))
        self.events.append(event)
        kind, name = event["type"], event.get("messageId", "")
        if kind == "TEXT_MESSAGE_START":
            self.messages[name] = ""
        elif kind == TEXT:
            self.messages[name] += event["delta"]
        elif kind == "TEXT_MESSAGE_END":
            self.shown.append(self.messages.pop(name))
        self._changed.set()


def is_in_reply(number: int) -> Callable[[list[str]], bool]:
    """Return whether the given number of replies has started, and the last one has some text."""
    return lambda kinds: kinds.count("TEXT_MESSAGE_START") == number and kinds[-1] == TEXT


@pytest.mark.long
async def test_a_reply_survives_the_death_of_its_worker_and_web_process(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One page is connected to the process that dies, and reconnects to the other."""
    moved, stays = Page(), Page()
    async with provider_server() as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        cut = FIRST_WORDS[ANTHROPIC] + 1
        provider.will(Say(LOST, cut=cut, end="silent"), Say(WHOLE, cut=cut, end="held"))
        fleet = Fleet(tmp_path, postgres.new_url(), model=ANTHROPIC)
        async with fleet.web() as (dies, first), fleet.web() as (_, second):
            accepted = {"Accept": "application/json"}
            await first.post("/agui", json=message("Weather?"), headers=accepted)
            following = asyncio.create_task(moved.follow(first))
            staying = asyncio.create_task(stays.follow(second))
            async with fleet.worker() as worker:
                await moved.until(is_in_reply(1))
                await stays.until(is_in_reply(1))
                worker.kill()
            fleet.let_leases_run_out()
            async with fleet.worker():
                await moved.until(is_in_reply(2))
                dies.kill()
                with pytest.raises(httpx2.TransportError):
                    await following
                following = asyncio.create_task(moved.follow(second))
                provider.continues.set()
                await following
                await staying
            nodes = (await second.get("/threads/t1/tree")).json()["nodes"]
    assert moved.numbers == list(range(1, len(moved.numbers) + 1))
    assert (moved.numbers, moved.events) == (stays.numbers, stays.events)
    assert [node["content"][0]["text"] for node in nodes] == ["Weather?", WHOLE]
    assert (moved.shown[-1], moved.messages) == (WHOLE, {})
    assert LOST.startswith(moved.shown[0])
    assert len(moved.shown) == 2
    nodes_shown = [each["value"] for each in moved.events if each.get("name") == "anabranch.node"]
    assert [node["id"] for node in nodes_shown] == [node["id"] for node in nodes]
    kinds = types_of(moved.events)
    assert (kinds[0], kinds.count("RUN_STARTED"), kinds[-1]) == ("RUN_STARTED", 1, "RUN_FINISHED")
    assert len(provider.bodies) == 2
