"""Whatever several clients do at the same time, some order of one after the other explains it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch.testing.suites import (
    CallModel,
    OpenCallStore,
    Operation,
    Seen,
    explains,
    run_clients,
)
from anabranch.testing.suites._call_samples import a_call
from anabranch.testing.suites._expectations import opened

NAMES = st.sampled_from(["call_1", "call_2"])
OWNERS = st.sampled_from(["a", "b"])
TIMES = st.integers(0, 4).map(float)
NUMBERS = st.integers(0, 2)
STEPS = st.sampled_from(["s", "t", "u"])
TEXTS = st.sampled_from(["1", "2", "3"])
STATUSES = st.sampled_from(["open", "done", "failed"])


def operation(method: str, *arguments: st.SearchStrategy[Any], **options: Any) -> Any:
    return st.builds(
        Operation, st.just(method), st.tuples(*arguments), st.fixed_dictionaries(options)
    )


def begun(name: str, tool: str, deadline: float) -> CallRecord:
    return a_call(name, tool=tool, deadline=deadline)


def opening(new: CallRecord, number: int, owner: str, until: float) -> Operation:
    return Operation("open_round", (new.call_id, number, owner, 0.0, until), {"new": new})


OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    operation("begin", st.builds(begun, NAMES, TEXTS, TIMES)),
    operation("find", NAMES),
    operation("calls", NUMBERS, tool=st.none() | TEXTS, status=st.none() | STATUSES),
    operation("leased", NAMES),
    operation("lease", NAMES, OWNERS, TIMES, TIMES),
    operation("open_round", NAMES, NUMBERS, OWNERS, TIMES, TIMES),
    st.builds(opening, st.builds(begun, NAMES, TEXTS, TIMES), NUMBERS, OWNERS, TIMES),
    operation("renew", NAMES, OWNERS, TIMES),
    operation("release", NAMES, OWNERS),
    operation("record", NAMES, NUMBERS, st.dictionaries(STEPS, TEXTS, min_size=1)),
    operation(
        "record",
        NAMES,
        NUMBERS,
        st.dictionaries(STEPS, TEXTS, min_size=1),
        owner=st.none() | OWNERS,
    ),
    operation("entries", NAMES, NUMBERS),
    operation(
        "end_round",
        NAMES,
        st.builds(RoundRecord, NUMBERS, TEXTS, TEXTS),
        deadline=st.none() | TIMES,
        status=STATUSES,
        release=st.none() | OWNERS,
    ),
    operation("round", NAMES, NUMBERS),
    operation("last_round", NAMES),
    operation(
        "finish",
        NAMES,
        STATUSES.filter(lambda status: status != "open"),
        owner=st.none() | OWNERS,
    ),
    operation("expired", TIMES, st.integers(1, 2)),
    operation("prune", TIMES, st.integers(1, 2)),
)
CLIENTS = st.lists(st.lists(OPERATIONS, max_size=4), min_size=2, max_size=3)
BEGINNING = [Operation("begin", (a_call("call_1"),)), Operation("begin", (a_call("call_2"),))]
LOOKING = [
    Operation(method, (name, *more))
    for name in ("call_1", "call_2")
    for method, *more in (("find",), ("last_round",), ("entries", 0), ("entries", 1))
]


async def empty(store: CallStore) -> None:
    """Make the store as good as new, which is faster than a new one."""
    for name in ("call_1", "call_2"):
        await store.finish(name, "done")
    await store.prune(1e12, 10)


@pytest.fixture
async def two_stores(open_shared: OpenCallStore) -> AsyncIterator[list[CallStore]]:
    """The same store, opened twice, as two processes would."""
    async with opened(open_shared) as one, opened(open_shared) as two:
        yield [one, two]


async def play(stores: Sequence[CallStore], clients: Sequence[Sequence[Operation]]) -> list[Seen]:
    """Two calls are begun, the clients work, and in the end everything is read."""
    seen: list[Seen] = []
    for phase in ([BEGINNING], clients, [LOOKING]):
        latest = seen[-1].ended if seen else 0
        seen += [
            replace(one, began=one.began + latest, ended=one.ended + latest)
            for one in await run_clients(stores, phase)
        ]
    return seen


@settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # it is emptied each time
)
@given(clients=CLIENTS)
async def test_some_order_explains_what_concurrent_clients_see(
    two_stores: list[CallStore], clients: list[list[Operation]]
) -> None:
    await empty(two_stores[0])

    seen = await play(two_stores, clients)

    assert explains(CallModel(), seen)


def test_no_order_explains_two_firsts() -> None:
    """The search itself: a lease given to two owners has no explanation."""
    begin = Seen(Operation("begin", (a_call(),)), 1, 2, a_call())
    first = Seen(Operation("lease", ("call_1", "a", 0.0, 9.0)), 3, 5, True)
    second = Seen(Operation("lease", ("call_1", "b", 0.0, 9.0)), 4, 6, False)

    assert explains(CallModel(), [begin, first, second])
    assert not explains(CallModel(), [begin, first, replace(second, result=True)])


def test_no_order_explains_a_read_that_misses_what_was_written_before_it() -> None:
    begin = Seen(Operation("begin", (a_call(),)), 1, 2, a_call())
    wrote = Seen(Operation("record", ("call_1", 0, {"s": "1"})), 3, 4, {"s": "1"})
    read = Seen(Operation("entries", ("call_1", 0)), 5, 6, {})

    assert not explains(CallModel(), [begin, wrote, read])
    assert explains(CallModel(), [begin, wrote, replace(read, began=3)])
