"""The real command at a pseudo-terminal, played by keyboard."""

from pathlib import Path

import pytest

from tests.cli.terminals import DOWN, ENTER, ESCAPE, terminal

FORMED = str(Path(__file__).with_name("formed.py"))


def test_the_demo_is_played_by_keyboard() -> None:
    with terminal("demo") as person:
        person.wait_for("round 1 ends with 1 question: pick_card/analyze#1/sample.1 (the model)")
        person.wait_for("Pick a card!")
        person.wait_for("Card number (1 to 5):")
        person.type("9\r")
        person.wait_for("must be 1 to 5")
        person.type("\x7f2\r")
        outcome = person.result()
    assert isinstance(outcome, dict)
    assert outcome["picked"] in outcome["message"]


def test_keys_typed_during_the_work_of_a_tool_do_not_answer_a_question(served: Path) -> None:
    with terminal("call", str(served), "confirm") as person:
        person.type("yes\r")
        person.wait_for("(y/N)")
        person.type(ESCAPE)
        assert person.result() == ["cancel"]


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_field_that_did_not_fit_is_asked_again_alone(era: str) -> None:
    with terminal("call", FORMED, "plan", "--era", era) as person:
        person.wait_for("name (at least 2 characters):")
        person.type("Ann" + ENTER)
        person.wait_for("nights (1 to 14):")
        person.type("99")
        person.wait_for("must be 1 to 14")  # before Enter
        person.store("form-constraint")
        person.type("\x7f\x7f3" + ENTER)
        person.wait_for("town:")
        person.wait_for("type to filter")
        person.type("inz")
        person.wait_until(lambda screen: "Linz" in screen and "Graz" not in screen)
        person.store("form-filter")
        person.resize(50, 12)
        person.wait_until(lambda screen: "Linz" in screen)
        person.store("form-filter-50x12")
        person.type(DOWN + ENTER)
        person.wait_for("did not fit: nights: rooms are\r\nlet for an even number of nights.)")
        person.wait_for("nights (1 to 14):")
        person.wait_for("3")
        person.type("\x7f4" + ENTER)
        assert person.result() == {"name": "Ann", "nights": 4, "town": "Mainz"}
        assert "name" not in person.shown
