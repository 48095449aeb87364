"""The table of states: docs/design.md has it as it is, and every way through it comes to an end."""

from pathlib import Path

from anabranch._durable.call_states import NAMED, OPEN, TRANSITIONS, UNDONE, CallEvent, CallState

PAGE = Path(__file__).parents[2] / "docs" / "design.md"
COLUMNS = (CallState.READY, CallState.RUNNING, CallState.WAITING, CallState.UNDOING)


def documented() -> dict[CallEvent, dict[CallState, CallState]]:
    """The table of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index("| event | `ready` | `running` | `waiting` | `undoing` |") + 2
    table: dict[CallEvent, dict[CallState, CallState]] = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        event, *places = (each.strip().strip("`") for each in line.strip("|").split("|"))
        table[CallEvent(event)] = {
            state: CallState(then) for state, then in zip(COLUMNS, places, strict=True) if then
        }
    return table


def test_the_page_has_the_table() -> None:
    assert documented() == TRANSITIONS


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
