"""The writer of event logs: which events it stores together, which immediately, and which wait."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from ag_ui.core import CustomEvent, TextMessageStartEvent

from anabranch._durable import NewEvents, RenewedLease, RunEvents
from anabranch.chat._web import log_writer
from anabranch.chat._web.log_writer import LogWriter, TextPiece, encoded
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.errors import StoreError
from anabranch.stores import open_run_events
from anabranch.testing import ManualClock
from tests.suites.turn_samples import running


class Watched:
    """Run events that record which threads are stored together, and wait where the test says so."""

    def __init__(self, good: RunEvents) -> None:
        self._good = good
        self.batches: list[dict[str, int]] = []
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        self.batches.append({each.run: len(each.events) for each in new})
        self.entered.set()
        await self.open.wait()
        await self._good.append_all(new, at=at)

    def __getattr__(self, method: str) -> Any:
        return getattr(self._good, method)


def piece(text: str) -> TextPiece:
    return TextPiece("m", text, None)


def notice(name: str) -> CustomEvent:
    return CustomEvent(name=name, value=None)


class LosesAnswers(Watched):
    """A store that keeps the first batch and loses its reply."""

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        await super().append_all(new, at=at)
        if len(self.batches) == 1:
            raise StoreError("the answer is lost")


class Busy(Watched):
    """A store during whose first batches another event of the thread is added."""

    left = 20

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        if self.left:
            self.left -= 1
            self.log.add([notice("more")])
        await super().append_all(new, at=at)

    def fill(self, log: ThreadLog) -> None:
        self.log = log
        log.add([notice("first")])


@pytest.fixture
def watched() -> Any:
    return Watched(open_run_events("memory:"))


def logs(watched: Any, clock: ManualClock | None = None) -> list[ThreadLog]:
    writer = LogWriter(watched, clock or ManualClock())
    return [ThreadLog(writer, name) for name in ("a", "b", "c")]


async def lease_on(events: Any, name: str, clock: ManualClock, lost: list[str]) -> RenewedLease:
    """Return a lease that is not renewed."""
    lease = RenewedLease(
        events, name, clock, seconds=15, kind="thread", on_lost=lambda: lost.append(name)
    )
    number = await events.last(name)
    await lease.take_by(
        lambda until: events.begin(
            name, running(f"r{number}", lease.owner, until), b'{"name":"run"}', at=0.0
        )
    )
    await lease.give_up()
    return lease


async def pass_on(events: Any, name: str) -> bool:
    """Give a turn to another worker, as after the death of its worker."""
    turn = await events.turn(name)
    return bool(await events.move(name, turn, replace(turn, owner="other")))


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", 0.0)
    monkeypatch.setattr(log_writer, "REST", 0.0)


@pytest.mark.usefixtures("restless")
async def test_all_threads_are_stored_together(watched: Any) -> None:
    one, two, three = logs(watched)
    for log in (one, two, three):
        log.add([piece("x")])
    two.add([notice("y")])
    await one.flush()
    assert watched.batches == [{"a": 1, "b": 2, "c": 1}]
    assert two.is_written
    await watched.close()


@pytest.mark.usefixtures("restless")
async def test_pieces_of_a_text_that_wait_together_are_one_event(watched: Any) -> None:
    one, two, _ = logs(watched)
    one.add([piece("a")])
    for each in ("b", "c"):
        one.add([piece(each)])
    two.add([piece("other")])
    one.add([TextPiece("m", "in a branch", "branch")])
    one.add([TextPiece("n", "next", "branch"), notice("y"), TextPiece("n", "last", "branch")])
    await two.flush()
    assert watched.batches == [{"a": 5, "b": 1}]
    read = [json.loads(each) for each in await one.read(0)]
    assert [(each.get("messageId"), each.get("delta")) for each in read] == [
        ("m", "abc"),
        ("m", "in a branch"),
        ("n", "next"),
        (None, None),
        ("n", "last"),
    ]
    await watched.close()


async def test_a_flush_stores_the_events_of_its_thread_alone_while_others_wait(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", 3600.0)
    one, two, three = logs(watched)
    one.add([piece("nothing was stored before")])
    await one.flush()
    one.add([piece("x")])
    two.add([piece("y")])
    two.add([notice("someone waits for this")])
    await two.flush()
    assert watched.batches == [{"a": 1}, {"b": 2}]
    assert not one.is_written
    three.add([piece("z")])
    await one.flush()
    assert watched.batches == [{"a": 1}, {"b": 2}, {"a": 1}]
    await three.flush()
    await watched.close()


@pytest.mark.usefixtures("restless")
async def test_a_flush_ends_although_further_events_are_added() -> None:
    busy: Any = Busy(open_run_events("memory:"))
    log, *_ = logs(busy)
    busy.fill(log)
    await log.flush()
    assert busy.left > 10
    while not log.is_written:
        await log.flush()
    assert sum(each["a"] for each in busy.batches) == 21


async def test_only_the_beginning_of_a_text_is_stored_before_the_rest_is_over(
    watched: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "LEAST_REST", 3600.0)
    one, two, _ = logs(watched)
    two.add([notice("node"), piece("said before")])
    one.add([notice("node")])
    begins = TextMessageStartEvent(message_id="m", role="assistant")
    one.add([begins, piece("x")])
    async with aclosing(
        one.follow(0)
    ) as following:  # the rest calls for nothing here, as flush() does
        await anext(following)
    assert watched.batches == [{"a": 3}]
    await two.flush()
    await watched.close()


@pytest.mark.usefixtures("restless")
async def test_text_is_stored_when_the_rest_is_over(watched: Any) -> None:
    one, two, _ = logs(watched)
    for log in (one, two):
        log.add([piece("x")])
        async with aclosing(
            log.follow(0)
        ) as following:  # the rest calls for nothing here, as flush() does
            assert (await anext(following))[:2] == (1, [encoded(piece("x"))])
    assert watched.batches == [{"a": 1}, {"b": 1}]
    await watched.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "last"])
async def test_each_event_is_stored_under_the_lease_with_which_it_was_reported(
    watched: Any, *, is_first: bool
) -> None:
    """An event reported under a lease that has passed to another worker is not stored."""
    clock, lost = ManualClock(), list[str]()
    one, _, _ = logs(watched, clock)
    late = await lease_on(watched, "a", clock, lost)
    await watched.release("a", late.owner)
    lease = await lease_on(watched, "a", clock, lost)
    if is_first:
        one.add([piece("late")], lease=late)
    one.add([piece("said"), notice("here")], lease=lease)
    if not is_first:
        one.add([piece("late")], lease=late)
    one.add([notice("of no one")])
    await one.flush()
    stored = [encoded(each) for each in (piece("said"), notice("here"), notice("of no one"))]
    assert await one.read(2) == stored
    await watched.close()


async def test_an_event_is_not_stored_if_its_lease_passes_on_during_the_write(watched: Any) -> None:
    """A process suspended between its check of the lease and the write must add nothing."""
    clock = ManualClock()
    one, two, _ = logs(watched, clock)
    lease = await lease_on(watched, "a", clock, [])
    watched.open.clear()
    one.add([notice("late")], lease=lease)
    two.add([notice("beside")])
    flushed = asyncio.ensure_future(one.flush())
    await watched.entered.wait()
    assert await pass_on(watched, "a")
    watched.open.set()
    await flushed
    assert [await log.last() for log in (one, two)] == [1, 1]
    await watched.close()


@pytest.mark.usefixtures("restless")
async def test_the_end_of_a_run_is_stored_with_the_events_before_it_and_releases_its_lease(
    watched: Any,
) -> None:
    clock, lost = ManualClock(), list[str]()
    one, two, _ = logs(watched, clock)
    run = await lease_on(watched, "a", clock, lost)
    one.add([notice("begun")], lease=run)
    one.add([notice("end")], lease=run, ends=True)
    one.add([notice("next")])
    two.add([notice("beside")])
    await one.flush()
    assert watched.batches == [{"a": 2, "b": 1}, {"a": 1}]
    assert await watched.turn("a") is None
    names = [json.loads(each)["name"] for each in await one.read(0)]
    assert names == ["run", "begun", "end", "next"]
    assert lost == []
    await watched.close()


async def test_a_batch_whose_reply_was_lost_is_stored_once_next_to_a_late_end() -> None:
    watched: Any = LosesAnswers(open_run_events("memory:"))
    clock = ManualClock()
    one, two, _ = logs(watched, clock)
    run = await lease_on(watched, "a", clock, [])
    assert await pass_on(watched, "a")
    one.add([notice("end")], lease=run, ends=True)
    two.add([notice("said")])
    flushed = asyncio.ensure_future(two.flush())
    while not flushed.done():
        await asyncio.sleep(0)
        clock.advance(0.1)
    assert [await log.last() for log in (one, two)] == [1, 1]
    await watched.close()


async def test_an_end_whose_reply_was_lost_is_stored_once() -> None:
    watched: Any = LosesAnswers(open_run_events("memory:"))
    clock = ManualClock()
    one, _, _ = logs(watched, clock)
    run = await lease_on(watched, "a", clock, [])
    one.add([notice("end")], lease=run, ends=True)
    flushed = asyncio.ensure_future(one.flush())
    while not flushed.done():
        await asyncio.sleep(0)
        clock.advance(0.1)
    assert await one.last() == 2
    await watched.close()
