"""Several processes over one store: one run at a time in a thread, stopped and repeated from anywhere."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch.chat._web import thread_lease
from anabranch.messages import SampleReply
from anabranch.stores import open_run_events
from anabranch.testing import MockModel, calls
from tests.chat.test_web_events import follow, process
from tests.chat.web import events_in, message, on_both_databases, resume, run, types_of
from tests.patience import PATIENCE


class Held:
    """A model that says one word, and then waits until it may go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def _reply(self) -> AsyncIterator[str | SampleReply]:
        yield "Well, "
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        yield calls(text="Well, yes.")

    def model(self) -> MockModel:
        return MockModel(lambda _: self._reply())


async def until_said(client: httpx2.AsyncClient) -> None:
    """Wait until the model has said its first word."""
    text = ""
    async with client.stream("GET", "/threads/t1/events?after=0") as response:
        async for piece in response.aiter_text():
            text += piece
            if '"delta"' in text:
                return


@on_both_databases
async def test_one_run_at_a_time_over_all_processes(url: str) -> None:
    held = Held()
    async with process(url, replies=held.model()) as one, process(url) as two:
        await two.post("/threads", json={"id": "t1"})
        running = asyncio.create_task(run(one, message("first")))
        await until_said(two)
        assert (await two.get("/threads/t1/tree")).json()["running"] is True
        refused = await two.post("/agui", json=message("second", run="r2"))
        assert (refused.status_code, "is running" in refused.json()["error"]) == (409, True)
        held.go_on.set()
        assert (await running)[-1]["outcome"] == {"type": "success"}
        assert (await two.get("/threads/t1/tree")).json()["running"] is False
        events = await run(two, message("second", run="r2"))
        assert "".join(each.get("delta", "") for each in events) == "You said second."


async def test_a_run_that_has_ended_makes_room_at_once(url: str) -> None:
    """Its last event releases the thread: who has read it can begin the next run, anywhere."""
    async with process(url) as one, process(url) as two:
        for number in range(6):
            client = (one, two)[number % 2]
            events = await run(client, message("hello", run=f"r{number}"))
            assert events[-1]["type"] == "RUN_FINISHED"


@on_both_databases
async def test_a_run_is_stopped_from_another_process(url: str) -> None:
    held = Held()
    async with process(url, replies=held.model()) as one, process(url) as two:
        await two.post("/threads", json={"id": "t1"})
        assert (await two.post("/threads/t1/stop", json={})).json() == {"stopped": False}
        running = asyncio.create_task(run(one, message("first")))
        await until_said(two)
        assert (await two.post("/threads/t1/stop", json={})).json() == {"stopped": True}
        events = await running
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert held.cancelled.is_set()
        nodes = (await two.get("/threads/t1/tree")).json()["nodes"]
        assert [node["content"][0]["text"] for node in nodes] == ["first", "Well, "]
        events = await run(two, message("second", run="r2"))
        assert events[-1]["outcome"] == {"type": "success"}  # an old request stops no later run


async def test_a_run_that_reaches_all_processes_at_once_is_one_run(url: str) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(process(url)) for _ in range(3)]
        await clients[0].post("/threads", json={"id": "t1"})
        found = await asyncio.gather(*(run(client, message("hello")) for client in clients))
        assert found[0] == found[1] == found[2]
        nodes = (await clients[0].get("/threads/t1/tree")).json()["nodes"]
    assert [node["kind"] for node in nodes] == ["user", "assistant"]


async def test_a_run_whose_thread_was_taken_over_stops_and_reports_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if its process had been suspended for longer than its lease."""
    monkeypatch.setattr(thread_lease, "SECONDS", 0.2)
    held, events = Held(), open_run_events(url)
    async with process(url, replies=held.model()) as one:
        await one.post("/threads", json={"id": "t1"})
        running = asyncio.create_task(run(one, message("first")))
        await until_said(one)
        owner = await events.holder("t1", 0.0)
        assert owner is not None
        monkeypatch.undo()  # the other one holds it for longer
        await events.release("t1", owner)
        while not await events.lease("t1", "another run.1", 1e12, 2e12):
            await events.release("t1", owner)
        await held.cancelled.wait()
        await events.append("t1", [b'{"type":"RUN_FINISHED","outcome":"of another"}'], at=1.0)
        reported = [each for each in await running if each["type"].startswith("RUN_")]
        assert types_of(reported) == ["RUN_STARTED", "RUN_FINISHED"]
        assert reported[-1]["outcome"] == "of another"
    await events.close()


async def test_a_question_of_one_process_is_answered_in_another(url: str) -> None:
    async with process(url) as one, process(url) as two:
        asked = (await run(one, message("reserve")))[-1]
        [interrupt] = asked["outcome"]["interrupts"]
        assert (await two.get("/threads/t1/pending")).json()[0]["interrupt_id"] == interrupt["id"]
        position = (await one.get("/threads/t1/tree")).json()["position"]
        watching = asyncio.create_task(follow(one, position, 8))
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"row": 3}}
        events = await run(two, resume(entry))
        assert events[-1]["outcome"] == {"type": "success"}
        assert "Row 3 on AB1" in str(events)
        assert "Row 3 on AB1" in str(await watching)
        answer = {"interrupt_id": interrupt["id"], "action": "accept", "content": {"row": 3}}
        assert (await one.post("/threads/t1/answers", json=answer)).status_code == 200
        other = {**answer, "content": {"row": 4}}
        assert (await one.post("/threads/t1/answers", json=other)).status_code == 409


SCRIPT = [{"text": "one two three four five"}] * 5


@asynccontextmanager
async def server(folder: Path, url: str) -> AsyncGenerator[tuple[Any, httpx2.AsyncClient]]:
    """``anabranch web`` in a process of its own."""
    script = folder / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", "anabranch", "web", "--port", "0", "--store", url]
    command += ["--model", f"script:{script}"]
    started = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert started.stderr is not None
    try:
        line = (await started.stderr.readline()).decode()
        address = line.rpartition(" ")[2].strip()
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
            yield started, client
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()  # which reads stderr to its end, and closes it


async def test_two_servers_are_one_and_one_goes_on_when_the_other_is_killed(
    tmp_path: Path, url: str
) -> None:
    async with server(tmp_path, url) as (killed, one), server(tmp_path, url) as (_, two):
        await two.post("/threads", json={"id": "t1"})
        watching = asyncio.create_task(follow(two, 0, 5))
        sent = (await one.post("/agui", json=message("hello"))).text.split("\n\n")[:-1]
        assert await watching == sent[:5]
        killed.send_signal(signal.SIGKILL)
        again = await two.post("/agui", json=message("hello"))
        assert events_in(again.text) == events_in("\n\n".join(sent))
        more = await run(two, message("hello again", run="r2"))
        assert more[-1]["outcome"] == {"type": "success"}
        assert await follow(two, 0, len(sent)) == sent
