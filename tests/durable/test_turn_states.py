"""The table of a turn's states, and the records that its events write."""

from dataclasses import replace

import pytest

from anabranch._durable import TURN_TRANSITIONS, TurnEvent, TurnRecord, TurnState, begun
from tests.durable.state_tables import documented

COLUMNS = tuple(TurnState)
WORKED = TurnRecord("t", TurnState.RUNNING, 9.0, "w", "p", attempt=2, wakes_at=5.0)
MADE = {
    TurnEvent.TAKE: lambda turn: turn.taken("w", "p", 20.0),
    TurnEvent.LEAVE: lambda turn: turn.left(20.0),
    TurnEvent.SLEEP: lambda turn: turn.asleep(20.0),
    TurnEvent.CALL: lambda turn: turn.called(20.0),
}


def test_the_page_has_the_table_of_turns() -> None:
    assert documented("turn", COLUMNS) == TURN_TRANSITIONS


@pytest.mark.parametrize("state", TurnState)
@pytest.mark.parametrize("event", MADE)
def test_an_event_changes_a_turns_state_by_the_table(event: TurnEvent, state: TurnState) -> None:
    turn = replace(WORKED, state=state)
    if (after := TURN_TRANSITIONS[event].get(state)) is None:
        with pytest.raises(KeyError):
            MADE[event](turn)
        return
    made = MADE[event](turn)
    assert (made.state, made.due) == (after, 20.0)
    assert bool(made.owner) == bool(made.process) == (after is TurnState.RUNNING)


def test_a_worker_that_left_its_turn_to_upkeep_is_counted() -> None:
    ready = TurnRecord("t", TurnState.READY, 20.0, attempt=3, wakes_at=5.0)
    assert WORKED.called(20.0) == ready
    assert ready.called(30.0) == replace(ready, due=30.0)
    assert WORKED.left(20.0) == replace(ready, attempt=2)
    assert WORKED.asleep(20.0).attempt == 0


def test_a_sleeping_turn_wakes_a_worker_before_its_time() -> None:
    asleep = WORKED.asleep(20.0)
    assert asleep.called(10.0) == replace(asleep, due=10.0, wakes_at=10.0)


def test_a_new_turn_is_running() -> None:
    assert begun("t", "w", "p", 9.0) == TurnRecord("t", TurnState.RUNNING, 9.0, "w", "p")
