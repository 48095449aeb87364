"""Features of a store of run events beyond its port: bounds, connections, and wake-ups of readers."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

import pytest
import sqlalchemy as sa

from anabranch._durable import EventId, MissedEventsError, NewEvents
from anabranch.errors import StoreError
from anabranch.stores import _event_tails, append_reported, open_run_events, open_tree_store
from anabranch.stores import _threads as connections
from anabranch.stores._database import Database
from anabranch.stores._engines import read_url
from anabranch.stores._event_tails import TAIL_BYTES, UNKNOWN, Page, Tail, Tails
from anabranch.stores._run_events import Events
from anabranch.tree import RefusedError
from tests.agents.memory import MemoryTrees
from tests.postgres import Server
from tests.stores.lost_events import lose_events
from tests.suites.expectations import opened
from tests.suites.run_event_checks import read_from
from tests.suites.tree_samples import a_node, a_result, begin_caller, says
from tests.suites.turn_samples import running

NEVER = 1e9


async def test_a_run_keeps_only_its_latest_events(url: str) -> None:
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        for number in range(1, 101):
            await store.append("r", [b"%d" % number], at=1.0)
            assert len(await read_from(store, "r", max(0, number - 10), 1)) == 1

        with pytest.raises(MissedEventsError) as caught:
            await read_from(store, "r", 79, 1)

    assert caught.value.last.number == 100
    assert "after number 79 are no longer stored" in str(caught.value)


async def test_a_late_shortening_of_a_run_restores_no_events(url: str) -> None:
    """Two processes may shorten a run at once, and the one with the earlier append may come last."""
    async with opened(lambda: Events(Database(read_url(url)))) as store:
        await store.append("r", [b"%d" % number for number in range(1, 61)], at=1.0)
        for first in (41, 21):
            await vars(type(store))["_shorten_to"](store, b"r", first)

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", 25, 1)
        assert await read_from(store, "r", 40, 1) == [(41, b"41")]


async def test_an_open_run_is_shortened_at_its_end(url: str) -> None:
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        await store.append("r", [b"before"] * 15, at=1.0)
        await store.begin("r", running("t"), b"begun", at=1.0)
        for _ in range(60):
            await store.append("r", [b"x"], at=1.0)
        assert await read_from(store, "r", 0, 76)
        await store.append_all([NewEvents("r", [b"end"], owner="a", ends=True)], at=1.0)
        last = await store.last("r")

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", last - 11, 1)
        assert (await read_from(store, "r", last - 10, 10))[-1] == (last, b"end")


async def test_a_run_that_begins_while_another_waits_loses_its_oldest_events(url: str) -> None:
    """The run may have a time of its next look between any two turns."""
    async with opened(lambda: Events(Database(read_url(url)), held=10)) as store:
        for number in range(10):
            turn = running(f"t{number}")
            await store.begin("r", turn, b"begun", at=1.0)
            await store.append("r", [b"x"] * 7, at=1.0)
            await store.move("r", turn, None)
            await store.look("r", 9.0)

        with pytest.raises(MissedEventsError):
            await read_from(store, "r", 48, 1)
        assert (await read_from(store, "r", 72, 8))[0] == (73, b"begun")


def event(name: str, owner: str | None) -> NewEvents:
    return NewEvents("t", [name.encode()] if name else [], owner=owner)


async def test_a_store_adds_nodes_with_events_only_for_the_owner_of_the_turn(url: str) -> None:
    """A suspended worker that resumes late would otherwise replace the results of the next worker."""
    trees = open_tree_store(url)
    events = open_run_events(trees)
    add = partial(append_reported, trees, events, at=1.0)
    await begin_caller(trees)
    with pytest.raises(StoreError):
        await add(event("early", "a"), results=[a_result("b", "early")])
    await events.begin("t", running("turn"), b"begun", at=1.0)
    await add(event("first", "a"), results=[a_result("b", "first")])
    await events.move("t", running("turn"), running("turn", "b"))

    for name in ("late", ""):
        with pytest.raises(StoreError, match="Another worker has taken over the turn of 't'"):
            await add(event(name, "a"), [a_node("late", "b")], results=[a_result("b", "late")])
    with pytest.raises(RefusedError):
        await add(event("refused", "b"), [a_node("b", "a")])
    await add(event("second", "b"), [a_node("c", "b")], results=[a_result("b", "second")])
    await add(event("by a user", None), [a_node("d", "c")])

    tree = await trees.tree("t")
    assert [node.id for node in tree.nodes] == ["a", "b", "c", "d"]
    assert [result.content for result in tree.results.values()] == [says("second")]
    told = [data for _, data in await read_from(events, "t", 0, 4)]
    assert told == [b"begun", b"first", b"second", b"by a user"]
    await trees.close()


async def test_events_of_nodes_in_a_store_of_another_package_are_in_memory() -> None:
    trees = MemoryTrees()
    events = open_run_events(trees)
    await begin_caller(trees)
    for name in ("c", ""):
        await append_reported(
            trees, events, event(name, None), [a_node(f"node{name}", "b")], at=1.0
        )
    assert await read_from(events, "t", 0, 1) == [(1, b"c")]
    assert len((await trees.tree("t")).nodes) == 4
    await events.close()


async def test_a_reader_that_returns_after_a_crash_misses_its_lost_events(url: str) -> None:
    """The rule holds whether or not other events have the numbers by then, even equal ones."""
    async with opened(lambda: Events(Database(read_url(url)))) as store:
        for event in (b"1", b"2", b"3", b"4"):
            await store.append("r", [event], at=1.0)
        ids = [await store.id_of("r", number) for number in range(1, 5)]
        await lose_events(url, "r", 2)
        for more in ([], [b"other", b"4"], [b"5"]):
            last = await store.append("r", more, at=1.0)
            for lost in ids[2:]:
                with pytest.raises(MissedEventsError) as caught:
                    await read_from(store, "r", lost, 1)
                assert caught.value.last == await store.id_of("r", last)
        assert await read_from(store, "r", ids[1], 2) == [(3, b"other"), (4, b"4")]


@pytest.mark.parametrize("read", [1, 3])
async def test_a_reader_learns_of_events_missed_through_a_crash(url: str, read: int) -> None:
    """The store lost events that are in this process's memory; later the store has as many again."""
    async with opened(lambda: Events(Database(read_url(url)))) as store:
        await store.append("r", [b"1", b"2", b"3"], at=1.0)
        async with aclosing(store.follow("r", 3 - read)) as following:
            assert len((await anext(following)).events) == read
            await lose_events(url, "r", 1)
            await store.append("r", [b"other 2"], at=1.0)
            await store.append("r", [b"other 3", b"4"], at=1.0)
            with pytest.raises(MissedEventsError):
                await anext(following)
        found = await read_from(store, "r", 1, 3)
    assert [event for _, event in found] == [b"other 2", b"other 3", b"4"]


class Stored:
    """Three events, which are large or small. A crash takes the last two."""

    def __init__(self, size: int) -> None:
        self.marks = [7, 8, 9]
        self.reads: list[EventId] = []
        self.has_nothing = asyncio.Event()
        self._size = size

    async def read(self, run: str, at: EventId) -> Page:
        self.reads.append(at)
        last = len(self.marks)
        if at.number > last:
            raise MissedEventsError(run, at.number, EventId(last, self.marks[-1]))
        if at.number == last:
            self.has_nothing.set()
        marks = self.marks[at.number :]
        before = self.marks[at.number - 1] if at.number else 0
        return Page([b"x" * self._size for _ in marks], marks, last, before)

    async def gives_the_next(self, shared: Tails) -> None:
        """Resume after the remaining event, wait for the next event, and receive it."""
        async with aclosing(shared.follow("r", EventId(1, 7))) as back:
            waits = asyncio.create_task(anext(back))
            await self.has_nothing.wait()
            self.marks.append(10)
            shared.publish("r", 2, [b"2"], 10)
            assert await waits == (2, [b"2"], [10])


async def test_a_tail_ahead_of_the_store_after_a_crash_is_forgotten() -> None:
    """The event is larger than the memory's limit, so a reader asks the store, which has no more events."""
    stored = Stored(2 * TAIL_BYTES)
    shared = Tails(stored.read, None)
    async with aclosing(shared.follow("r", 0)) as slow:
        assert (await anext(slow)).marks == [7, 8, 9]
        del stored.marks[1:]
        await stored.gives_the_next(shared)
        with pytest.raises(MissedEventsError):
            await anext(slow)
    assert stored.reads == [(0, UNKNOWN), (1, 7), (1, 7), (3, 9)]


async def test_a_tail_gives_no_event_that_another_reader_found_lost() -> None:
    stored = Stored(1)
    shared = Tails(stored.read, None)
    async with aclosing(shared.follow("r", 0)) as slow:
        await anext(slow)
        del stored.marks[1:]
        shared.wake_all()
        async with aclosing(shared.follow("r", EventId(3, 9))) as following:
            with pytest.raises(MissedEventsError):
                await anext(following)
        await stored.gives_the_next(shared)
    assert stored.reads == [(0, UNKNOWN), (3, 9), (1, 7)]


async def test_events_are_in_the_database_of_the_conversations(url: str) -> None:
    async with opened(partial(open_tree_store, url)) as trees:
        beside = open_run_events(trees)
        await beside.append("r", [b"a"], at=1.0)
    async with opened(partial(open_run_events, url)) as store:
        assert await store.last("r") == 1


async def test_events_for_a_custom_tree_store_are_in_memory() -> None:
    async with opened(lambda: open_run_events(MemoryTrees())) as store:
        assert await store.append("r", [b"a"], at=1.0) == 1


def test_a_tail_is_bounded() -> None:
    tail = Tail("r")
    for number in range(1, 1001):
        tail.extend(number, [b"x" * 10_000], [number])
    assert tail.end == 1000
    assert len(after(tail, 1000 - 6)) == 6
    assert not after(tail, 1000 - 14)
    assert not after(tail, 0)
    tail.extend(1001, [b"x" * 10_000_000], [1])
    assert len(after(tail, 1000)) == 1


def after(tail: Tail, number: int, mark: int = UNKNOWN) -> Sequence[bytes]:
    """Return the events of a tail after an event."""
    found = tail.after(EventId(number, mark))
    assert found is None or (found.first, len(found.marks)) == (number + 1, len(found.events))
    return found.events if found else ()


def test_a_tail_takes_batches_in_any_order() -> None:
    tail = Tail("r")
    tail.extend(4, [b"4", b"5"], [7, 7])
    tail.extend(1, [b"1", b"2", b"3"], [6, 6, 6])
    assert (tail.end, after(tail, 3), after(tail, 2)) == (5, [b"4", b"5"], ())
    tail.extend(5, [b"5", b"6"], [7, 8])
    assert after(tail, 3) == [b"4", b"5", b"6"]
    assert after(tail, 4, 7) == [b"5", b"6"]


def test_a_tail_gives_nothing_to_a_reader_of_another_event() -> None:
    tail = Tail("r")
    tail.extend(1, [b"1", b"2"], [7, 8])
    assert (after(tail, 1, 7), after(tail, 1, 8), after(tail, 2, 8)) == ([b"2"], (), ())
    assert [tail.has(EventId(2, each)) for each in (7, 8, UNKNOWN)] == [False, True, True]


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_a_tail_starts_again_where_the_store_lost_events(first: int) -> None:
    tail = Tail("r")
    tail.extend(1, [b"1", b"2", b"3"], [7, 7, 7])
    before = 9 if first > 1 else UNKNOWN
    tail.extend(first, [b"new"], [9], before)
    assert (tail.end, after(tail, first - 1)) == (first, [b"new"])
    assert not tail.has(EventId(3, 7))


async def test_readers_at_the_end_share_one_read_of_the_store() -> None:
    reads: list[int] = []
    stored = [b"1"]

    async def read(_run: str, at: EventId) -> Page:
        reads.append(at.number)
        await asyncio.sleep(0)
        return Page(stored[at.number :], [7] * len(stored[at.number :]), len(stored), UNKNOWN)

    shared = Tails(read, None)
    async with asyncio.TaskGroup() as group:
        for _ in range(100):
            group.create_task(_first(shared, 0))
    assert reads == [0]


async def _first(shared: Tails, number: int) -> None:
    async with aclosing(shared.follow("r", number)) as following:
        assert await anext(following) == (number + 1, [b"1"], [7])


async def test_a_run_without_readers_is_forgotten() -> None:
    async def read(_run: str, _at: EventId) -> Page:
        return Page([b"1"], [7], 1, UNKNOWN)

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
    assert watched == []  # the run ended before the watch began
    async with aclosing(shared.follow("r", 0)) as following:
        await anext(following)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watched == ["r", "over"]
    assert vars(shared)["_loops"] == vars(shared)["_watching"] == {}


async def test_postgres_announces_events(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query that replaces a lost announcement would come too late here."""
    monkeypatch.setattr(_event_tails, "CHECK", NEVER)
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


async def test_a_lost_announcement_only_delays_events(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_event_tails, "CHECK", 0.01)
    monkeypatch.setattr(_event_tails, "CHANNEL", "something_else")
    open_store = partial(open_run_events, postgres.new_url())
    async with (
        opened(open_store) as one,
        opened(open_store) as two,
        aclosing(two.follow("r", 0)) as following,
    ):
        for number in range(1, 5):
            await one.append("r", [b"%d" % number], at=1.0)
            assert (await anext(following))[0] == number


async def test_a_broken_listening_connection_is_reopened(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_event_tails, "CHECK", NEVER)
    monkeypatch.setattr(_event_tails, "RETRY", 0.01)
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
    assert "cannot see" in caplog.text
    await database.close()


async def listened(database: Database) -> None:
    """Wait until a connection listens."""
    listeners = sa.text(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND state = 'idle' AND query LIKE 'LISTEN%'"
    )
    while not await database.read(lambda connection: connection.scalar(listeners)):
        pass
