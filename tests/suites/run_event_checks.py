"""The suite for stores of run events; ``run_turn_checks.py`` has the checks of turns."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

import anyio

from anabranch._durable import EventId, MissedEventsError, NewEvents, RunEvents
from tests.suites.expectations import TEXTS, expect, opened, refused, yes
from tests.suites.turn_samples import put_turn, running

OpenRunEvents: TypeAlias = Callable[[], RunEvents]
"""Opens a store of run events."""

RunEventCheck: TypeAlias = Callable[[OpenRunEvents], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""

PATIENCE = 60.0
"""Seconds after which a check gives up waiting for an appended event."""

MOST_AT_ONCE = 1_000_000
"""Maximum bytes of small events in one batch."""


def some(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


async def read_from(
    store: RunEvents, run: str, after: int | EventId, count: int
) -> list[tuple[int, bytes]]:
    """Return the first ``count`` events after a number or an event, each with its number."""
    found: list[tuple[int, bytes]] = []
    with anyio.move_on_after(PATIENCE):
        async with aclosing(store.follow(run, after)) as following:
            async for first, events, _ in following:
                found += [(first + place, event) for place, event in enumerate(events)]
                if len(found) >= count:
                    return found[:count]
    raise AssertionError(f"found {found!r}, expected {count} events")


async def _ids_in(store: RunEvents, run: str, count: int) -> list[EventId]:
    """Return the ids of the first ``count`` events, as readers receive them."""
    found: list[EventId] = []
    with anyio.move_on_after(PATIENCE):
        async with aclosing(store.follow(run, 0)) as following:
            async for first, events, marks in following:
                expect(len(marks), len(events), "each event of a batch has a mark")
                found += [EventId(first + place, mark) for place, mark in enumerate(marks)]
                if len(found) >= count:
                    return found[:count]
    raise AssertionError(f"found {found!r}, expected the ids of {count} events")


async def missed(store: RunEvents, run: str, after: int | EventId, last: int, promise: str) -> None:
    """Expect that a reader who resumes after ``after`` receives the notice of missed events."""
    try:
        found = await read_from(store, run, after, 1)
    except MissedEventsError as error:
        expect(error.last, await store.id_of(run), f"{promise}: the id of the last")
        expect(error.last.number, last, f"{promise}: its number")
        return
    raise AssertionError(f"{promise}: found {found!r}, expected a MissedEventsError")


async def numbers_count_from_one_without_gaps(open_store: OpenRunEvents) -> None:
    """Each run has its own numbers, in the order of appending."""
    async with opened(open_store) as store:
        expect(await store.last("r"), 0, "a run without events has the number 0")
        expect(await store.append("r", some("a", "b"), at=1.0), 2, "the number of the last")
        expect(await store.append("r", some("c"), at=1.0), 3, "numbers go on")
        expect(await store.append("r", [], at=1.0), 3, "no events, no number")
        expect(await store.append("other", some("x"), at=1.0), 1, "each run has its own")
        expect(await store.last("r"), 3, "the last number")
        found = await read_from(store, "r", 0, 3)
        expect(found, [(1, b"a"), (2, b"b"), (3, b"c")], "all, in order")


async def a_reader_gets_exactly_the_events_it_has_missed(open_store: OpenRunEvents) -> None:
    """A reader may resume after any number."""
    async with opened(open_store) as store:
        for start in range(0, 40, 4):
            await store.append("r", [b"%d" % (start + place) for place in range(4)], at=1.0)
        for after in range(40):
            found = await read_from(store, "r", after, 40 - after)
            wanted = [(number + 1, b"%d" % number) for number in range(after, 40)]
            expect(found, wanted, f"what follows on {after}")


async def a_reader_waits_for_new_events(open_store: OpenRunEvents) -> None:
    """A reader at the end receives new events, also of a new run."""
    async with opened(open_store) as store:
        found: list[tuple[int, bytes]] = []

        async def read() -> None:
            found.extend(await read_from(store, "r", 0, 20))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            for number in range(20):
                await anyio.lowlevel.checkpoint()
                await store.append("r", [b"%d" % number], at=1.0)
        expect(found, [(each + 1, b"%d" % each) for each in range(20)], "each once, in order")


async def a_slow_reader_delays_no_one(open_store: OpenRunEvents) -> None:
    """A slow reader stops at the first event; the writer and other readers continue, and it misses nothing."""
    async with opened(open_store) as store, aclosing(store.follow("r", 0)) as slow:
        await store.append("r", some("first"), at=1.0)
        found = list((await anext(slow))[1])
        later = [b"%d" % number + b"x" * 10_000 for number in range(200)]
        for start in range(0, len(later), 10):
            await store.append("r", later[start : start + 10], at=1.0)
        yes(len(await read_from(store, "r", 1, len(later))) > 0, "another reader has read all")
        while len(found) <= len(later):
            first, events, _ = await anext(slow)
            expect(first, len(found) + 1, "it goes on where it was")
            yes(sum(map(len, events)) <= MOST_AT_ONCE, "it is given what fits into memory")
            found += events
        yes(found == [b"first", *later], "it has missed nothing")


async def simultaneous_writers_get_different_numbers(open_store: OpenRunEvents) -> None:
    """Batches of ten writers do not mix, and a reader from the start receives all events."""
    last: dict[str, list[int]] = {}

    async def write(store: RunEvents, name: str) -> None:
        last[name] = [await store.append("r", some(name, name, name), at=1.0) for _ in range(5)]

    async with opened(open_store) as store:
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(write, store, f"writer {number}")
        found = await read_from(store, "r", 0, 150)
        expect([number for number, _ in found], list(range(1, 151)), "dense and in order")
        events = dict(found)
        for name, ends in last.items():
            expect(ends, sorted(ends), "each writer's numbers go up")
            for end in ends:
                own = [events[end - place] for place in range(3)]
                expect(own, some(name, name, name), f"the batch that ended with {end}")


async def one_operation_appends_to_several_runs(open_store: OpenRunEvents) -> None:
    """Each run has its own numbers, key and lease; the store appends to all runs or to none."""
    async with opened(open_store) as store:
        await store.append("b", some("x"), at=1.0)
        turn = running("t", "owner")
        await put_turn(store, "b", turn)
        new = [
            NewEvents("b", some("y"), key="k", owner="owner", ends=True),
            NewEvents("a", some("1", "2"), key="k"),
            NewEvents("c", some("z")),
        ]
        await store.append_all(new, at=2.0)
        expect(await read_from(store, "a", 0, 2), [(1, b"1"), (2, b"2")], "a new run")
        expect(await read_from(store, "b", 1, 2), [(2, b"."), (3, b"y")], "its numbers go on")
        expect([await store.last(run) for run in "abc"], [2, 3, 1], "the numbers of the last")
        expect([await store.find(run, "k") for run in "abc"], [1, 3, None], "each has its key")
        expect([await store.turn(run) for run in "abc"], [None] * 3, "and its turn")
        many = [NewEvents(f"r{number}", some(*"abc")) for number in range(150)]
        for _ in range(2):
            await store.append_all(many, at=3.0)
        expect([await store.last(each.run) for each in many], [6] * 150, "however many there are")
        expect(await read_from(store, "r149", 3, 3), [(4, b"a"), (5, b"b"), (6, b"c")], "all")
        await store.append_all([], at=4.0)


async def any_event_is_stored(open_store: OpenRunEvents) -> None:
    """Any bytes, no bytes, and 2 MB come back, under any run name and key."""
    async with opened(open_store) as store:
        for text in TEXTS:
            data = [text.encode("utf-8", "surrogatepass"), b"\x00\xff", b"", b"\xfe" * 2_000_000]
            name = f"run {text}"
            await store.append_all([NewEvents(name, data, key=f"key {text}")], at=1.0)
            found = await read_from(store, name, 0, 4)
            yes([event for _, event in found] == data, f"the events of {name!r} are stored")
            expect(await store.find(name, f"key {text}"), 1, "it is found under its key")
            turn = replace(running(name, name), version=name)
            await put_turn(store, name, turn)
            expect(await store.turn(name), turn, "any turn, owner and version")


async def a_key_finds_the_first_of_its_events(open_store: OpenRunEvents) -> None:
    """A key belongs to one run; the first append under a key counts."""
    async with opened(open_store) as store:
        await store.append("r", some("a"), at=1.0)
        for new in (
            NewEvents("r", some("b", "c"), key="k"),
            NewEvents("r", some("d"), key="k"),
            NewEvents("other", some("x"), key="x"),
        ):
            await store.append_all([new], at=1.0)
        expect(await store.find("r", "k"), 2, "the first of the events")
        expect(await store.find("other", "x"), 1, "each run has keys of its own")
        expect(await store.find("r", "x"), None, "and not those of another")
        expect(await store.find("none", "k"), None, "a run without events has none")


async def a_reader_after_an_unknown_event_is_refused(open_store: OpenRunEvents) -> None:
    """The store does not mistake a number without an event for the end."""
    async with opened(open_store) as store:
        await missed(store, "none", 1, 0, "a run without events")
        await store.append("r", some("a", "b"), at=1.0)
        await missed(store, "r", 3, 2, "beyond the last event")
        await missed(store, "r", -1, 2, "before the first number")


async def an_id_identifies_its_event_after_a_loss(open_store: OpenRunEvents) -> None:
    """After a crash, another event may have the same number, as events of another run here.

    An event may equal the event at its number although earlier events differ. A reader with the one
    id has then missed the other events.
    """
    async with opened(open_store) as store:
        expect(await store.id_of("r"), EventId(0, 0), "that before the first event")
        for event in some("a", "b", "c", "d"):
            await store.append("r", [event], at=1.0)
        await store.append("s", some("x"), at=1.0)
        await store.append_all([NewEvents("s", some("b")), NewEvents("other", some("b"))], at=1.0)
        yes(await store.begin("s", running("t"), b"c", at=1.0) is not None, "a turn has the third")
        ids, others = await _ids_in(store, "r", 4), await _ids_in(store, "s", 3)
        yes(all(mark > 0 for _, mark in ids + others), "a mark is positive")
        expect(await _ids_in(store, "r", 4), ids, "each reader is given the same ids")
        expect([await store.id_of("r", each) for each in range(1, 5)], ids, "as who asks for them")
        expect([await store.id_of("r"), await store.id_of("s")], [ids[3], others[2]], "of the last")
        for at, event in zip(ids, (b"b", b"c", b"d"), strict=False):
            expect(await read_from(store, "r", at, 1), [(at.number + 1, event)], f"after {at}")
        for lost, at in zip(others, ids, strict=False):
            await missed(store, "r", lost, 4, "it has another event there")
            await missed(store, "s", at, 3, "and so has the other run")
            await missed(store, "r", EventId(at.number, 0), 4, "no mark is none")
        await missed(store, "s", ids[3], 3, "an event that the store has no more")
        await store.append("r", some("e"), at=1.0)
        expect(await read_from(store, "r", ids[3], 1), [(5, b"e")], "who has seen all goes on")
        expect(await read_from(store, "r", EventId(0, 7), 1), [(1, b"a")], "nothing was read")


async def pruning_deletes_events_of_old_runs(open_store: OpenRunEvents) -> None:
    """A call deletes a limited number of events. Numbers continue, and a reader learns of missed events."""
    async with opened(open_store) as store:
        await store.append_all([NewEvents("old", some(*"abcde"), key="k")], at=1.0)
        last = await store.id_of("old")
        await store.append("new", some("a"), at=9.0)
        await put_turn(store, "open", running("t", "owner"))
        expect(await store.prune(1.0, 10), 0, "what is from that time stays")
        expect(await store.prune(9.0, 2), 2, "at most so many")
        expect(await read_from(store, "old", 2, 3), [(3, b"c"), (4, b"d"), (5, b"e")], "the rest")
        await missed(store, "old", 1, 5, "some are deleted")
        expect(await store.find("old", "k"), None, "what is deleted is not found")
        expect(await store.prune(9.0, 10), 3, "then the others")
        expect(await store.prune(9.0, 10), 0, "and no more")
        await missed(store, "old", 4, 5, "all are deleted")
        expect(await store.id_of("old"), last, "the id of the last stays")
        expect(await store.last("old"), 5, "and its number")
        expect(await store.append("old", some("f"), at=9.0), 6, "and is not used again")
        expect(
            await read_from(store, "old", 5, 1), [(6, b"f")], "a reader who has seen all goes on"
        )
        expect(await read_from(store, "new", 0, 1), [(1, b"a")], "the other run is as it was")
        expect(await read_from(store, "open", 0, 1), [(1, b".")], "so is one with a turn")
        await store.release("open", "owner")
        expect(await store.prune(9.0, 10), 1, "until it has ended")


async def a_cancelled_append_is_complete_or_absent(open_store: OpenRunEvents) -> None:
    """A cancellation at any moment leaves all events or none, and no gap."""
    async with opened(open_store) as store:
        for number in range(20):
            async with anyio.create_task_group() as group:
                group.start_soon(_append, store, number)
                for _ in range(number):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        last = await store.append("r", some("end"), at=1.0)
        yes(last % 2 == 1, "no half of a batch is there")
        found = await read_from(store, "r", 0, last)
        expect([number for number, _ in found], list(range(1, last + 1)), "there is no gap")


async def _append(store: RunEvents, number: int) -> None:
    await store.append("r", [b"%d" % number] * 2, at=1.0)


async def closing_ends_readers(open_store: OpenRunEvents) -> None:
    """Closing the store twice is harmless; operations and open reads on a closed store end."""
    async with opened(open_store) as store:
        await store.append("r", some("a"), at=1.0)
        async with aclosing(store.follow("r", 0)) as following:
            await anext(following)
            ended = anyio.Event()

            async def read() -> None:
                await refused(anext(following), "a reader that waits")
                ended.set()

            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await anyio.lowlevel.checkpoint()
                await store.close()
                with anyio.move_on_after(PATIENCE):
                    await ended.wait()
                group.cancel_scope.cancel()
            yes(ended.is_set(), "a reader that waits learns that the store was closed")
        await store.close()
        await refused(store.last("r"), "reading from a closed store")
        await refused(store.append("r", some("b"), at=1.0), "writing to a closed store")


EVENT_CHECKS: tuple[RunEventCheck, ...] = (
    numbers_count_from_one_without_gaps,
    a_reader_gets_exactly_the_events_it_has_missed,
    a_reader_waits_for_new_events,
    a_slow_reader_delays_no_one,
    simultaneous_writers_get_different_numbers,
    one_operation_appends_to_several_runs,
    any_event_is_stored,
    a_key_finds_the_first_of_its_events,
    a_reader_after_an_unknown_event_is_refused,
    an_id_identifies_its_event_after_a_loss,
    pruning_deletes_events_of_old_runs,
    a_cancelled_append_is_complete_or_absent,
    closing_ends_readers,
)
"""The checks that open a store once."""
