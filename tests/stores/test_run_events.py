"""What a store of run events does beyond its port: bounds, connections, and who is woken by what."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial

import pytest
import sqlalchemy as sa

from anabranch._durable.run_events import MissedEventsError
from anabranch.stores import _connections as connections
from anabranch.stores import _event_watches as watches
from anabranch.stores import open_run_events, open_tree_store
from anabranch.stores._database import Database
from anabranch.stores._event_tails import Page, Tail, Tails
from anabranch.stores._run_events import Events
from anabranch.stores._urls import read_url
from anabranch.testing.suites._expectations import opened
from anabranch.testing.suites._run_event_checks import read_from
from tests.agents.memory import MemoryTrees
from tests.postgres import Server

NEVER = 1e9


async def test_a_run_holds_its_latest_events_only(url: str) -> None:
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        for number in range(1, 101):
            await store.append("r", [b"%d" % number], at=1.0)
            assert len(await read_from(store, "r", max(0, number - 10), 1)) == 1

        with pytest.raises(MissedEventsError) as caught:
            await read_from(store, "r", 79, 1)

    assert caught.value.last == 100
    assert "after number 79 are no longer stored" in str(caught.value)


async def test_of_two_that_shorten_a_run_the_later_brings_nothing_back(url: str) -> None:
    """Two processes may do so at once, and the one whose append came first may come last."""
    async with opened(lambda: Events(Database(read_url(url)))) as store:
        await store.append("r", [b"%d" % number for number in range(1, 61)], at=1.0)
        for first in (41, 21):
            await vars(type(store))["_shorten_to"](store, b"r", first)

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", 25, 1)
        assert await read_from(store, "r", 40, 1) == [(41, b"41")]


async def test_an_open_run_is_shortened_when_it_has_ended(url: str) -> None:
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        await store.append("r", [b"before"] * 15, at=1.0)
        await store.begin("r", "a", 9.0, b"begun", at=1.0, key="k")
        for _ in range(60):
            await store.append("r", [b"x"], at=1.0)
        assert await read_from(store, "r", 0, 76)
        last = await store.append("r", [b"end"], at=1.0, release="a")

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", last - 11, 1)
        assert (await read_from(store, "r", last - 10, 10))[-1] == (last, b"end")


async def test_a_run_that_begins_where_another_waits_has_what_was_before_shortened(
    url: str,
) -> None:
    """A lease may pass from run to run, and never be released."""
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        owner = None
        for number in range(10):
            await store.begin(
                "r", f"of {number}", 9.0, b"begun", at=1.0, key=f"k{number}", instead=owner
            )
            await store.append("r", [b"x"] * 7, at=1.0)
            owner = f"of {number}"

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", 48, 1)
        assert (await read_from(store, "r", 72, 8))[0] == (73, b"begun")


async def test_events_lie_beside_conversations(url: str) -> None:
    async with opened(partial(open_tree_store, url)) as trees:
        beside = open_run_events(trees)
        await beside.append("r", [b"a"], at=1.0)
    async with opened(partial(open_run_events, url)) as store:
        assert await store.last("r") == 1


async def test_events_beside_a_store_of_another_kind_are_in_memory() -> None:
    async with opened(lambda: open_run_events(MemoryTrees())) as store:
        assert await store.append("r", [b"a"], at=1.0) == 1


def test_a_tail_is_bounded() -> None:
    tail = Tail("r")
    for number in range(1, 1001):
        tail.extend(number, [b"x" * 10_000])
    assert tail.end == 1000
    assert len(tail.after(1000 - 6)) == 6
    assert not tail.after(1000 - 14)
    assert not tail.after(0)
    tail.extend(1001, [b"x" * 10_000_000])
    assert len(tail.after(1000)) == 1


def test_a_tail_takes_batches_in_any_order() -> None:
    tail = Tail("r")
    tail.extend(4, [b"4", b"5"])
    tail.extend(1, [b"1", b"2", b"3"])
    assert (tail.end, tail.after(3), tail.after(2)) == (5, [b"4", b"5"], ())
    tail.extend(5, [b"5", b"6"])
    assert tail.after(3) == [b"4", b"5", b"6"]


async def test_readers_at_the_end_read_the_store_once_for_all() -> None:
    reads: list[int] = []
    stored = [b"1"]

    async def read(_run: str, after: int) -> Page:
        reads.append(after)
        await asyncio.sleep(0)
        return Page(stored[after:], len(stored))

    shared = Tails(read, None)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_first(shared, 0))
    assert reads == [0]


async def _first(shared: Tails, after: int) -> None:
    async with aclosing(shared.follow("r", after)) as following:
        assert await anext(following) == (after + 1, [b"1"])


async def test_a_run_that_no_one_follows_is_forgotten() -> None:
    async def read(_run: str, _after: int) -> Page:
        return Page([b"1"], 1)

    watched: list[str] = []

    async def watch(found: dict[str, Tail]) -> None:
        watched.extend(tail.run for tail in found.values())
        try:
            await asyncio.Event().wait()
        finally:
            watched.append("over")

    shared = Tails(read, watch)
    await _first(shared, 0)
    await asyncio.sleep(0)
    assert watched == []  # it was over before the watch began
    async with aclosing(shared.follow("r", 0)) as following:
        await anext(following)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watched == ["r", "over"]
    assert vars(shared)["_loops"] == vars(shared)["_watching"] == {}


async def test_postgres_announces_events(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look that replaces a lost announcement comes too late here."""
    monkeypatch.setattr(watches, "CHECK", NEVER)
    open_store = partial(open_run_events, postgres.new_url())
    async with (
        opened(open_store) as one,
        opened(open_store) as two,
        aclosing(two.follow("r", 0)) as following,
    ):
        await one.append("r", [b"1"], at=1.0)
        await anext(following)
        for number in range(2, 20):
            await one.append("r", [b"%d" % number], at=1.0)
            assert (await anext(following))[0] == number


async def test_a_lost_announcement_only_delays(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "CHECK", 0.01)
    monkeypatch.setattr(watches, "CHANNEL", "something_else")
    open_store = partial(open_run_events, postgres.new_url())
    async with (
        opened(open_store) as one,
        opened(open_store) as two,
        aclosing(two.follow("r", 0)) as following,
    ):
        for number in range(1, 5):
            await one.append("r", [b"%d" % number], at=1.0)
            assert (await anext(following))[0] == number


async def test_a_connection_that_breaks_is_opened_again(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watches, "CHECK", NEVER)
    monkeypatch.setattr(watches, "RETRY", 0.01)
    monkeypatch.setattr(connections, "TRUSTED", -1)
    url = postgres.new_url()
    open_store, database = partial(open_run_events, url), Database(read_url(url))
    async with (
        opened(open_store) as one,
        opened(open_store) as two,
        aclosing(two.follow("r", 0)) as following,
    ):
        await one.append("r", [b"1"], at=1.0)
        await anext(following)
        await listened(database)
        postgres.close_connections()
        await one.append("r", [b"2"], at=1.0)
        assert (await anext(following))[0] == 2
    assert "are not seen" in caplog.text
    await database.close()


async def listened(database: Database) -> None:
    """Wait until a connection listens."""
    listeners = sa.text(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'idle' AND query LIKE 'LISTEN%'"
    )
    while not await database.read(lambda connection: connection.scalar(listeners)):
        pass
