"""Whatever several clients do at the same time, some order of one after the other explains it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.stores import CallState, CallStore, LeaseRecord
from tests.stores.call_operations import BEGINNING, LOOKING, OPERATIONS, empty
from tests.suites.call_model import CallModel
from tests.suites.call_samples import OpenCallStore, a_call
from tests.suites.expectations import opened
from tests.suites.linearizability import Operation, Seen, explains, run_clients

CLIENTS = st.lists(st.lists(OPERATIONS, max_size=4), min_size=2, max_size=3)


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
async def test_some_order_explains_the_reads_of_concurrent_clients(
    two_stores: list[CallStore], clients: list[list[Operation]]
) -> None:
    await empty(two_stores[0])

    seen = await play(two_stores, clients)

    assert explains(CallModel(), seen)


def test_no_order_explains_two_firsts() -> None:
    """The search itself: a lease given to two owners has no explanation."""
    begin = Seen(Operation("begin", (a_call(),)), 1, 2, a_call())
    taken = a_call(state=CallState.UNDOING, lease=LeaseRecord("a", 300.0))
    other = replace(taken, lease=LeaseRecord("b", 300.0))
    first = Seen(Operation("take_to_undo", ("call_1", "a", 200.0, 300.0)), 3, 5, taken)
    second = Seen(Operation("take_to_undo", ("call_1", "b", 200.0, 300.0)), 4, 6, None)

    assert explains(CallModel(), [begin, first, second])
    assert not explains(CallModel(), [begin, replace(first, result=other), second])
    assert not explains(CallModel(), [begin, first, replace(second, result=other)])


def test_no_order_explains_a_read_that_misses_an_earlier_write() -> None:
    begin = Seen(Operation("begin", (a_call(),)), 1, 2, a_call())
    wrote = Seen(Operation("record", ("call_1", 0, {"s": "1"})), 3, 4, {"s": "1"})
    read = Seen(Operation("entries", ("call_1", 0)), 5, 6, {})

    assert not explains(CallModel(), [begin, wrote, read])
    assert explains(CallModel(), [begin, wrote, replace(read, began=3)])
