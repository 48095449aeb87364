"""Checks of stores of run events that several threads and processes share."""

from collections.abc import Callable
from typing import Any

import anyio

from anabranch._durable import NewEvents, RunEvents
from tests.suites.child_processes import Child, in_processes, in_threads, killed_in_mid_work
from tests.suites.expectations import expect, opened, yes
from tests.suites.run_event_checks import OpenRunEvents, RunEventCheck, read_from, some
from tests.suites.turn_samples import running

_EVENTS = 30


async def a_store_reads_events_of_another_store(open_store: OpenRunEvents) -> None:
    """A reader of one store receives appends of the other; numbers, keys and turns are shared."""
    async with opened(open_store) as one, opened(open_store) as two:
        async with anyio.create_task_group() as group:
            group.start_soon(_expect_events, two, 10)
            for number in range(10):
                await anyio.lowlevel.checkpoint()
                expect(await one.append("r", [b"%d" % number], at=1.0), number + 1, "its number")
        await two.append_all([NewEvents("r", some("x"), key="k")], at=1.0)
        expect(await two.last("r"), 11, "numbers go on")
        expect(await one.find("r", "k"), 11, "keys are shared")
        expect(await read_from(one, "r", 9, 2), [(10, b"9"), (11, b"x")], "so are events")
        at = await one.id_of("r", 10)
        expect(await two.id_of("r", 10), at, "and their ids")
        yes(await one.begin("r", running("t", "one"), b".", at=1.0) is not None, "a turn begins")
        expect(await two.begin("r", running("u", "two"), b".", at=1.0), None, "for all stores")
        expect(await two.turn("r"), running("t", "one"), "who sees it")
    async with opened(open_store) as store:
        expect(await store.last("r"), 12, "all survives the stores")
        expect(await read_from(store, "r", at, 1), [(11, b"x")], "as do ids")


async def _expect_events(store: RunEvents, count: int) -> None:
    wanted = [(number + 1, b"%d" % number) for number in range(count)]
    expect(await read_from(store, "r", 0, count), wanted, "each once, in order")


async def writers_in_several_threads_agree(open_store: OpenRunEvents) -> None:
    """Each thread has an event loop and a store, writes, and reads all threads' events."""
    names = [f"thread {number}" for number in range(3)]
    _judge(await in_threads(_write_and_read, open_store, names), len(names))


async def one_store_serves_several_event_loops(open_store: OpenRunEvents) -> None:
    """Events appended in one event loop are read in the others."""
    async with opened(open_store) as store:
        await store.last("r")
        names = [f"loop {number}" for number in range(3)]
        _judge(await in_threads(_with_store, lambda: store, names), len(names))


async def writers_in_several_processes_agree(open_store: OpenRunEvents) -> None:
    """Each process writes, and reads all processes' events."""
    names = [f"process {number}" for number in range(3)]
    _judge(await in_processes(_write_and_read, open_store, names), len(names))


async def appended_events_survive_a_kill(open_store: OpenRunEvents) -> None:
    """A writer is killed while it writes: every acknowledged event is there, and no batch is partial."""
    acknowledged = await killed_in_mid_work(_write_until_killed, open_store, "r", after=30)
    async with opened(open_store) as store:
        last = await store.last("r")
        yes(last % 3 == 0, "a batch is there with all its events or not at all")
        yes(3 * (acknowledged + 1) <= last, f"batch {acknowledged} had been acknowledged")
        found = await read_from(store, "r", 0, last)
        wanted = [(each + 1, b"%d" % (each // 3)) for each in range(last)]
        expect(found, wanted, "in the order of appending, without a gap")


async def a_reader_sees_events_of_another_process(open_store: OpenRunEvents) -> None:
    """The reader gets events while the other process runs, without other activity in this process."""
    process = Child(_append_one_by_one, open_store, "r")
    await process.ready()
    async with opened(open_store) as store:
        process.go()
        await _expect_events(store, _EVENTS)
    expect(await process.receive(), _EVENTS, "the process has appended all")
    await process.end()


async def _append_one_by_one(
    open_store: OpenRunEvents, run: str, report: Callable[[Any], None]
) -> None:
    async with opened(open_store) as store:
        for number in range(_EVENTS):
            await store.append(run, [b"%d" % number], at=1.0)
    report(_EVENTS)


async def _write_and_read(open_store: OpenRunEvents, name: str) -> list[tuple[int, bytes]]:
    async with opened(open_store) as store:
        return await _write_and_follow(store, name)


async def _with_store(open_store: OpenRunEvents, name: str) -> list[tuple[int, bytes]]:
    return await _write_and_follow(open_store(), name)


async def _write_and_follow(store: RunEvents, name: str) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []

    async def read() -> None:
        found.extend(await read_from(store, "r", 0, 3 * _EVENTS))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        for number in range(_EVENTS):
            await store.append("r", some(f"{name}.{number}"), at=1.0)
    return found


def _judge(found: list[list[tuple[int, bytes]]], writers: int) -> None:
    expect(len({tuple(each) for each in found}), 1, "all have read the same")
    numbers = [number for number, _ in found[0]]
    expect(numbers, list(range(1, writers * _EVENTS + 1)), "dense and in order")
    expect(len({event for _, event in found[0]}), writers * _EVENTS, "no event is lost")


async def _write_until_killed(
    open_store: OpenRunEvents, run: str, report: Callable[[Any], None]
) -> None:
    async with opened(open_store) as store:
        number = 0
        while True:
            await store.append(run, [b"%d" % number] * 3, at=1.0)
            report(number)
            number += 1


SHARED_RUN_EVENT_CHECKS: tuple[RunEventCheck, ...] = (
    a_store_reads_events_of_another_store,
    writers_in_several_threads_agree,
    one_store_serves_several_event_loops,
    writers_in_several_processes_agree,
    appended_events_survive_a_kill,
    a_reader_sees_events_of_another_process,
)
"""The checks that open a store several times over the same data."""
