"""The table of states: docs/design.md has it as it is, and every way through it comes to an end."""

from anabranch._durable import NAMED, OPEN, TRANSITIONS, UNDONE, CallState
from tests.durable.state_tables import documented

COLUMNS = (CallState.READY, CallState.RUNNING, CallState.WAITING, CallState.UNDOING)


def test_the_page_has_the_table() -> None:
    assert documented("event", COLUMNS) == TRANSITIONS


def test_an_end_is_left_by_no_event() -> None:
    assert {state for table in TRANSITIONS.values() for state in table} == OPEN


def test_every_open_state_is_reached_and_has_a_way_to_each_end() -> None:
    for state in OPEN:
        reached = {state}
        while True:
            further = {
                table[each] for table in TRANSITIONS.values() for each in reached if each in table
            }
            if further <= reached:
                break
            reached |= further
        ends = set(CallState) - OPEN - ({CallState.DONE} if state == CallState.UNDOING else set())
        assert ends <= reached


def test_states_go_by_their_names() -> None:
    assert NAMED["open"] == OPEN
    assert all(NAMED[str(state)] == {state} for state in CallState)
    assert not UNDONE & OPEN
