"""The table of a call's states equals the one in docs/design.md, and every state leads to an end."""

from anabranch._durable import NAMED, OPEN, TRANSITIONS, UNDONE, CallState
from tests.durable.state_tables import documented

COLUMNS = (CallState.READY, CallState.RUNNING, CallState.WAITING, CallState.UNDOING)


def test_the_page_has_the_table_of_call_states() -> None:
    assert documented("event", COLUMNS) == TRANSITIONS


def test_no_event_leaves_an_end_state() -> None:
    assert {state for table in TRANSITIONS.values() for state in table} == OPEN


def test_every_open_state_is_reachable_and_leads_to_each_end() -> None:
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


def test_states_are_written_by_their_names() -> None:
    assert NAMED["open"] == OPEN
    assert all(NAMED[str(state)] == {state} for state in CallState)
    assert not UNDONE & OPEN
