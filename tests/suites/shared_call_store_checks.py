"""Checks of stores of calls that several threads and processes share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from anabranch._durable import CallEvent, CallState
from anabranch.stores import CallStore
from tests.suites.call_samples import CallStoreCheck, OpenCallStore, a_call, an_end, run
from tests.suites.child_processes import in_processes, in_threads, killed_in_mid_work
from tests.suites.expectations import expect, opened, yes

_STEPS = 25


@dataclass(frozen=True, slots=True)
class _Race:
    """The results of one of several racing writers."""

    texts: tuple[str, ...]
    answer: str
    leased: bool


async def a_call_survives_reopening_its_store(open_store: OpenCallStore) -> None:
    """All data of a call survive the end of the store object."""
    async with opened(open_store) as store:
        await store.begin(a_call())
        await store.record("call_1", 0, {"b": "1", "a": "2"})
        await run(store)
        await store.end_round("call_1", an_end(), CallEvent.ASK, owner="a", deadline=300.0)
        await store.answer("call_1", {"asked": "yes"}, by="page")
        await run(store, number=1)
    async with opened(open_store) as store:
        running = a_call(deadline=300.0, state=CallState.RUNNING)
        expect(await store.find("call_1"), running, "the call is there")
        found = list((await store.entries("call_1", 0)).items())
        expect(found, [("b", "1"), ("a", "2")], "its entries are there, in order")
        expect(await store.last_round("call_1"), an_end(), "its rounds are there")
        expect((await store.answers("call_1"))["asked"].text, "yes", "its answers are there")
        expect(await run(store, number=1, owner="b"), None, "its lease is there")


async def a_store_reads_writes_of_another_store(open_store: OpenCallStore) -> None:
    """Two open stores of the same data share every write."""
    async with opened(open_store) as one, opened(open_store) as two:
        await one.begin(a_call())
        expect(await two.find("call_1"), a_call(), "the other knows the call")
        expect(await two.record("call_1", 0, {"a": "two"}), {"a": "two"}, "the first record")
        expect(await one.record("call_1", 0, {"a": "one"}), {"a": "two"}, "the first stays")
        expect(
            await two.answer("call_1", {"a": "two"}, by="page"), {"a": "two"}, "the first answer"
        )
        expect(await one.answer("call_1", {"a": "one"}, by="page"), {"a": "two"}, "the first stays")
        yes(await run(one, owner="one") is not None, "the first lease")
        expect(await run(two, owner="two"), None, "holds for the other")


async def writers_of_one_call_do_not_deadlock(open_store: OpenCallStore) -> None:
    """Two writers that record the same steps in opposite orders both finish."""
    found: dict[str, list[dict[str, str]]] = {}

    async def work(store: CallStore, name: str, direction: int) -> None:
        found[name] = []
        for number in range(_STEPS):
            steps = [f"{number}.a", f"{number}.b", f"{number}.c"][::direction]
            found[name].append(await store.record("call_1", 0, dict.fromkeys(steps, name)))

    async with opened(open_store) as one, opened(open_store) as two:
        await one.begin(a_call())
        async with anyio.create_task_group() as group:
            group.start_soon(work, one, "one", 1)
            group.start_soon(work, two, "two", -1)
    expect(found["one"], found["two"], "both read the same texts")
    mixed = [texts for texts in found["one"] if len(set(texts.values())) > 1]
    expect(mixed, [], "a record is all or none, so each is one's or the other's")


async def writers_in_several_threads_agree(open_store: OpenCallStore) -> None:
    """Each thread has an event loop and a store."""
    names = [f"thread {number}" for number in range(4)]
    await _judge(open_store, await in_threads(_race, open_store, names))


async def writers_in_several_processes_agree(open_store: OpenCallStore) -> None:
    """The processes also race to set up a new store."""
    names = [f"process {number}" for number in range(3)]
    await _judge(open_store, await in_processes(_race, open_store, names))


async def recorded_entries_survive_a_kill(open_store: OpenCallStore) -> None:
    """A writer is killed while it writes: every acknowledged record is complete, and no record is partial."""
    for life, enough in enumerate((3, 30)):
        call_id = f"call_{life}"
        acknowledged = await killed_in_mid_work(
            _write_until_killed, open_store, call_id, after=enough
        )
        async with opened(open_store) as store:
            found = list(await store.entries(call_id, 0))
            expect(len(found) % 2, 0, "a record is there with all its entries or not at all")
            wanted = [f"{number}.{half}" for number in range(len(found) // 2) for half in "ab"]
            expect(found, wanted, "in the order of recording, without a gap")
            yes(acknowledged < len(found) // 2, f"record {acknowledged} had been acknowledged")
            expect(await store.record(call_id, 0, {"next": "life"}), {"next": "life"}, "it works")


async def _race(open_store: OpenCallStore, name: str) -> _Race:
    async with opened(open_store) as store:
        await store.begin(a_call())
        leased = await run(store, owner=name) is not None
        texts: list[str] = []
        for number in range(_STEPS):
            entries = {f"{name}.{number}": "own", f"step {number}": name}
            texts.append((await store.record("call_1", 0, entries))[f"step {number}"])
        answer = await store.answer("call_1", {"asked": name}, by="page")
        return _Race(tuple(texts), "" if answer is None else answer["asked"], leased)


async def _judge(open_store: OpenCallStore, races: Sequence[_Race]) -> None:
    expect(len({race.texts for race in races}), 1, "all read the same texts")
    expect(len({race.answer for race in races}), 1, "all read the same answer")
    expect(sum(race.leased for race in races), 1, "one has the lease")
    async with opened(open_store) as store:
        stored = await store.entries("call_1", 0)
        found = tuple(stored[f"step {number}"] for number in range(_STEPS))
        expect(found, races[0].texts, "what they read is what is stored")
        expect(len(stored), _STEPS * (len(races) + 1), "no writer's own entries are lost")


async def _write_until_killed(
    open_store: OpenCallStore, call_id: str, report: Callable[[Any], None]
) -> None:
    async with opened(open_store) as store:
        await store.begin(a_call(call_id))
        number = 0
        while True:
            await store.record(call_id, 0, {f"{number}.a": "1", f"{number}.b": "2"})
            report(number)
            number += 1


SHARED_CALL_STORE_CHECKS: tuple[CallStoreCheck, ...] = (
    a_call_survives_reopening_its_store,
    a_store_reads_writes_of_another_store,
    writers_of_one_call_do_not_deadlock,
    writers_in_several_threads_agree,
    writers_in_several_processes_agree,
    recorded_entries_survive_a_kill,
)
"""The checks that open a store several times over the same data."""
