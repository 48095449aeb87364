"""Events of a thread: numbered, stored, and the same in every process and after a restart."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from ag_ui.core import CustomEvent, TextMessageContentEvent

from anabranch import BranchContext, tool
from anabranch._durable import NewEvents, RunEvents
from anabranch.agents import Notice, ToolNoticed
from anabranch.chat._web import event_stream, thread_log
from anabranch.chat._web.event_mapping import EventMapping
from anabranch.chat._web.event_stream import EventStream
from anabranch.chat._web.log_writer import LogWriter, TextPiece, encoded
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.errors import StoreError
from anabranch.messages import ToolUseBlock
from anabranch.stores import open_run_events
from anabranch.testing import ManualClock
from tests.chat.shared_runs import process
from tests.chat.web import events_in, message, named, numbers_of, on_both_databases, run
from tests.stores.lost_events import lose_events


async def follow(
    client: httpx2.AsyncClient, after: int | str, count: int, thread: str = "t1"
) -> list[str]:
    """Return the next events as sent, with their ids."""
    headers = {b"Last-Event-ID": str(after).encode()}
    async with client.stream("GET", f"/threads/{thread}/events", headers=headers) as response:
        assert response.status_code == 200
        text = ""
        async for piece in response.aiter_text():
            text += piece
            if text.count("\n\n") >= count:
                return text.split("\n\n")[:count]
    raise AssertionError(text)


async def sent_by(client: httpx2.AsyncClient, body: dict[str, Any]) -> list[str]:
    return (await client.post("/agui", json=body)).text.split("\n\n")[:-1]


def id_of(event: str) -> str:
    return event.partition("\n")[0].removeprefix("id: ")


async def test_a_reader_continues_after_a_restart(url: str) -> None:
    async with process(url) as client:
        sent = await sent_by(client, message("hello"))
        position = (await client.get("/threads/t1/tree")).json()["position"]
        assert position == id_of(sent[-1])
        first = await follow(client, 0, len(sent))
    assert first == sent
    assert numbers_of(sent) == list(range(1, len(sent) + 1))
    async with process(url) as client:
        assert await follow(client, "0-0", len(sent)) == sent
        for seen in (1, 3, len(sent) - 1):
            assert await follow(client, id_of(sent[seen - 1]), len(sent) - seen) == sent[seen:]
        more = await sent_by(client, message("again", run="r2"))
        assert numbers_of(more)[0] == len(sent) + 1


async def test_a_reader_learns_that_it_missed_events_lost_in_a_crash(url: str) -> None:
    """After the crash, other events have the lost events' numbers."""
    async with process(url) as client:
        kept = await sent_by(client, message("hello"))
        lost = await sent_by(client, message("again", run="r2"))
    await lose_events(url, "t1", len(kept))
    async with process(url) as client:
        new = await sent_by(client, message("more", run="r3"))
        assert numbers_of(new) == numbers_of(lost)
        for each in lost:
            [found] = await follow(client, id_of(each), 1)
            assert found == f"id: {id_of(new[-1])}\ndata: {thread_log.MISSED.decode()}"
        assert await follow(client, id_of(kept[-1]), len(new)) == new


@on_both_databases
async def test_events_of_one_process_are_seen_in_another(url: str) -> None:
    async with process(url) as one, process(url) as two:
        await two.post("/threads", json={"id": "t1"})
        watching = asyncio.create_task(follow(two, 0, 12))
        sent = await sent_by(one, message("hello"))
        again = await sent_by(one, message("again", run="r2"))
        assert await watching == [*sent, *again][:12]


async def test_a_run_is_the_same_run_after_a_restart_and_in_another_process(url: str) -> None:
    async with process(url) as one:
        sent = await run(one, message("hello"))
        async with process(url) as two:
            assert await run(two, message("hello")) == sent
    async with process(url) as three:
        assert await run(three, message("hello")) == sent
        nodes = (await three.get("/threads/t1/tree")).json()["nodes"]
    assert [node["kind"] for node in nodes] == ["user", "assistant"]


NOWHERE = [
    *("99", "3", "-1", "", "x", "1.5", "²", "9" * 30, "cafe-3", "3-", "3-0", "3-1", "99-1"),
    *("9" * 19 + "-1", "3-" + "f" * 17, "-1-1", "+3-{mark}", "3-{mark}0", "²-{mark}"),
]


async def test_a_reader_with_an_unknown_position_learns_that_it_missed_events() -> None:
    """A reader that sends only a number gets the same event, because another event may have that number."""
    async with process("memory:") as client:
        sent = await sent_by(client, message("hello"))
        mark = id_of(sent[2]).partition("-")[2]
        for position in NOWHERE:
            [found] = await follow(client, position.format(mark=mark), 1)
            missed = f"id: {id_of(sent[-1])}\ndata: {thread_log.MISSED.decode()}"
            assert found == missed, position


async def test_comments_are_sent_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.01)
    async with process("memory:") as client:
        await client.post("/threads", json={"id": "t1"})
        assert await follow(client, 0, 1) == [": nothing new"]


@pytest.mark.parametrize("text", ["a", '"\\\n\0', "é🃏\u2028"], ids=["plain", "quoted", "wide"])
@pytest.mark.parametrize("branch", [None, "node_1"])
def test_text_events_match_the_models_of_ag_ui(text: str, branch: str | None) -> None:
    event = TextMessageContentEvent(message_id="m", delta=text, subagent_run_id=branch)
    written = encoded(TextPiece("m", text, branch))
    assert json.loads(written) == event.model_dump(by_alias=True, exclude_none=True)


def test_a_notice_is_reported_once_when_its_round_runs_again() -> None:
    """A round runs again after a crash, and in the same turn after the loss of its lease."""
    use = ToolUseBlock(id="use", name="fly", input={})
    said = [Notice("up", "info", id="call:fly!1"), Notice("down", "info", id="call:fly!2")]
    foreign = Notice("from a server that gives its notices no ids", "info")

    def reported(mapping: EventMapping, notices: list[Notice]) -> list[bytes]:
        events = [ToolNoticed("node", use, notice) for notice in notices]
        return [encoded(one) for event in events for one in mapping.map(event)]

    log = reported(EventMapping(), [said[0], said[0], foreign, foreign])
    assert [json.loads(event)["type"] for event in log] == ["CUSTOM"] * 3
    again = EventMapping()
    again.continue_after([encoded(TextPiece("m", "text", None)), *log])
    assert reported(again, [said[0], said[0]]) == []
    assert len(reported(again, [said[1], foreign])) == 2


def test_text_that_utf_8_lacks_is_escaped() -> None:
    token = TextPiece("m", "\udce9", None)
    assert json.loads(encoded(token))["delta"] == "\\udce9"
    assert json.loads(encoded(CustomEvent(name="n", value=["\udce9"])))["value"] == ["\\udce9"]


class Failing:
    """Run events of a store that fails at times, before or after it has written."""

    def __init__(self, good: RunEvents, *fails: str) -> None:
        self._good = good
        self._fails = list(fails)
        self.failures = 0

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        how = self._fails.pop(0) if self._fails else ""
        self.failures += bool(how)
        if how == "before":
            raise StoreError("It is down.")
        await self._good.append_all(new, at=at)
        if how == "after":
            raise StoreError("It is down.")

    def __getattr__(self, method: str) -> Any:
        return getattr(self._good, method)


async def names_in(events: RunEvents, last: int) -> list[str]:
    found: list[bytes] = []
    async with aclosing(events.follow("t", 0)) as following:
        async for _, batch, _ in following:
            found += batch
            if len(found) >= last:
                break
    return [each["name"] for each in events_in("\n".join(f"data: {e.decode()}" for e in found))]


async def test_events_are_stored_once_when_requests_fail() -> None:
    clock, good = ManualClock(), open_run_events("memory:")
    failing: Any = Failing(good, "before", "after", "", "after", "before", "before")
    log = ThreadLog(LogWriter(failing, clock), "t")
    wanted = [str(number) for number in range(10)]
    async with clock.running(0.001):  # slow, since the store works in a thread meanwhile
        for name in wanted:
            log.add(named(name))
            if int(name) % 3 == 0:
                await log.flush()
        assert failing.failures > 2
        assert log.is_written
        assert await names_in(good, await log.last()) == wanted
    await good.close()


async def test_a_store_that_stays_away_loses_events_and_ends_no_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, good = ManualClock(), open_run_events("memory:")
    log = ThreadLog(LogWriter(Failing(good, *["before"] * 10_000), clock), "t")
    async with clock.running(1.0):
        log.add(named("lost"))
        await log.flush()
    assert "lost 1 events of 1 conversations" in caplog.text
    assert await good.last("t") == 0
    await good.close()


async def test_a_turn_waits_while_much_awaits_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_log, "MOST_WAITING", 1_000)
    good = open_run_events("memory:")
    log = ThreadLog(LogWriter(good, ManualClock()), "t")
    log.add(named("small"))
    await log.room()
    assert not log.is_written
    log.add(named("x" * 1_000))
    await log.room()
    assert log.is_written
    await good.close()


async def test_a_reader_reconnects_when_a_failing_store_ends_its_stream() -> None:
    good = open_run_events("memory:")
    log = ThreadLog(LogWriter(good, ManualClock()), "t")
    log.add(named("a"))
    await log.flush()
    sent: list[Any] = []
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    async def send(piece: Any) -> None:
        sent.append(piece)
        if len(sent) == 2:
            await good.close()

    await EventStream(log, 0, idle)({"type": "http"}, receive, send)
    assert [piece.get("more_body") for piece in sent] == [None, True, None]


@tool
async def wait_for_ever(ctx: BranchContext) -> None:
    await ctx.notify("Waiting", 1, 2)
    await asyncio.Event().wait()


async def test_a_reader_that_joins_a_run_reads_it_from_its_beginning(url: str) -> None:
    async with process(url, tools=[wait_for_ever]) as client:
        await client.post("/agui", json=message("hello"))
        body = message("/wait_for_ever", run="r2")
        await client.post("/agui", json=body, headers={"Accept": "application/json"})
        [known] = (await client.get("/threads")).json()
        state = (await client.get(f"/threads/{known['id']}/tree")).json()
        assert state["running"]
        [first] = await follow(client, state["position"], 1)
        assert '"type":"RUN_STARTED"' in first
        assert '"runId":"r2"' in first
        await client.post("/threads/t1/stop")
        state = (await client.get("/threads/t1/tree")).json()
        assert not state["running"]
        sent = await follow(client, 0, int(state["position"].partition("-")[0]))
        assert '"type":"RUN_FINISHED"' in sent[-1]
        assert id_of(sent[-1]) == state["position"]


async def idle() -> bool:
    return False


async def test_a_stream_ends_when_its_runs_process_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE", 0.0)
    good = open_run_events("memory:")
    leases = iter([True, True, True, False])
    sent: list[Any] = []
    never = asyncio.Event()

    async def is_running() -> bool:
        return next(leases)

    async def receive() -> Any:
        await never.wait()

    async def send(piece: Any) -> None:
        sent.append(piece.get("body"))

    log = ThreadLog(LogWriter(good, ManualClock()), "t")
    await EventStream(log, 0, is_running)({"type": "http"}, receive, send)
    assert sent == [None, b": nothing new\n\n", b""]
    await good.close()
