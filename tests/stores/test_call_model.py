"""A store of calls gives the results of the plain model, for any operations in any state."""

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, given

from anabranch._durable import CallState
from anabranch.stores import CallStore
from tests.randomised import examples
from tests.stores.call_operations import BEGINNING, LOOKING, PROGRAMS, STATES, empty
from tests.suites.call_model import CallModel
from tests.suites.call_model_checks import reaching
from tests.suites.call_samples import OpenCallStore
from tests.suites.expectations import opened
from tests.suites.linearizability import Operation, compare


@pytest.fixture
async def store(open_shared: OpenCallStore) -> AsyncIterator[CallStore]:
    async with opened(open_shared) as store:
        yield store


@examples(80, HealthCheck.function_scoped_fixture)  # the test empties the store for each example
@given(first=STATES, second=STATES, program=PROGRAMS)
async def test_sequential_operations_on_a_call_store_equal_the_model(
    store: CallStore, first: CallState, second: CallState, program: Sequence[Operation]
) -> None:
    await empty(store)
    states = [*reaching(first, "call_1"), *reaching(second, "call_2")]

    program = [*BEGINNING, *states, *program, *LOOKING]
    await compare(store, CallModel(), program, "a program")


def test_each_state_is_reached_in_the_model() -> None:
    for state in CallState:
        model = CallModel()
        for one in (*BEGINNING, *reaching(state, "call_1")):
            model.do(one)
        found = model.find("call_1")
        assert found is not None
        assert found.state == state
