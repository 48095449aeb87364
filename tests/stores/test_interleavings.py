"""Concurrent operations of several clients have the results of some sequential order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from anabranch._durable import AnswerRecord, CallState, LeaseRecord
from anabranch.stores import CallStore, open_store
from tests.patience import PATIENCE
from tests.postgres import Server
from tests.randomised import examples
from tests.stores.call_operations import BEGINNING, LOOKING, OPERATIONS, empty
from tests.suites.call_model import CallModel
from tests.suites.call_samples import OpenCallStore, a_call
from tests.suites.expectations import opened
from tests.suites.linearizability import Operation, Seen, explains, run_phases

T = TypeVar("T")
WAITING = """
SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
CLIENTS = st.lists(st.lists(OPERATIONS, max_size=4), min_size=2, max_size=3)


@pytest.fixture
async def two_stores(open_shared: OpenCallStore) -> AsyncIterator[list[CallStore]]:
    """Open the same store twice, as two processes do."""
    async with opened(open_shared) as one, opened(open_shared) as two:
        yield [one, two]


@examples(50, HealthCheck.function_scoped_fixture)  # the test empties the store for each example
@given(clients=CLIENTS)
async def test_some_order_explains_the_reads_of_concurrent_clients(
    two_stores: list[CallStore], clients: list[list[Operation]]
) -> None:
    await empty(two_stores[0])

    seen = await run_phases(two_stores, [BEGINNING], clients, [LOOKING])

    assert explains(CallModel(), seen)


async def done_meanwhile(
    postgres: Server, operation: Callable[[CallStore], Awaitable[T]]
) -> tuple[T, dict[str, AnswerRecord]]:
    """Run an operation on a call whose row another client has locked, to mark the call as done.

    Return the result, and the inbox of the call.
    """
    url = postgres.new_url()
    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())
        with psycopg.connect(url) as other, psycopg.connect(url, autocommit=True) as watching:
            other.execute("UPDATE anabranch_call SET state = 'done'")
            operating = asyncio.ensure_future(operation(store))
            async with asyncio.timeout(PATIENCE):
                while not operating.done():
                    waiting = await asyncio.to_thread(watching.execute, WAITING)
                    if waiting.fetchone():
                        break
            assert not operating.done()
            other.commit()
        return await operating, await store.answers("call_1")


async def test_a_round_opens_after_the_end_of_a_call_that_holds_the_row(postgres: Server) -> None:
    found, _ = await done_meanwhile(
        postgres, lambda store: store.open_round("call_1", 0, "a", 0.0, 10.0)
    )
    assert found is not None
    assert (found.call.state, found.is_leased) == (CallState.DONE, False)


async def test_an_answer_is_refused_after_the_end_of_a_call_with_the_row(postgres: Server) -> None:
    found, inbox = await done_meanwhile(
        postgres, lambda store: store.answer("call_1", {"step": "1"}, by="page")
    )
    assert found is None
    assert inbox == {}


def test_no_order_explains_a_lease_with_two_owners() -> None:
    """Test the search: a lease given to two owners has no explanation."""
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
