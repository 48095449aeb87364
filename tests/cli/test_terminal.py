"""The real command at a pseudo-terminal, played by keyboard."""

from pathlib import Path

import pytest

from tests.cli.terminals import DOWN, ENTER, ESCAPE, terminal

FORMED = str(Path(__file__).with_name("formed.py"))


def test_the_demo_is_played_by_keyboard() -> None:
    with terminal("demo") as user:
        user.wait_for("round 1 ends with 1 question: pick_card/analyze#1/sample.1 (the model)")
        user.wait_for("Pick a card!")
        user.wait_for("Card number (1 to 5):")
        user.type("9\r")
        user.wait_for("must be 1 to 5")
        user.type("\x7f2\r")
        outcome = user.result()
    assert isinstance(outcome, dict)
    assert outcome["picked"] in outcome["message"]


def test_keys_typed_during_the_work_of_a_tool_do_not_answer_a_question(served: Path) -> None:
    with terminal("call", str(served), "confirm") as user:
        user.type("yes\r")
        user.wait_for("(y/N)")
        user.type(ESCAPE)
        assert user.result() == ["cancel"]


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_field_that_did_not_fit_is_asked_again_alone(era: str) -> None:
    with terminal("call", FORMED, "plan", "--era", era) as user:
        user.wait_for("name (at least 2 characters):")
        user.type("Ann" + ENTER)
        user.wait_for("nights (1 to 14):")
        user.type("99")
        user.wait_for("must be 1 to 14")  # before Enter
        user.store("form-constraint")
        user.type("\x7f\x7f3" + ENTER)
        user.wait_for("town:")
        user.wait_for("type to filter")
        user.type("inz")
        user.wait_until(lambda screen: "Linz" in screen and "Graz" not in screen)
        user.store("form-filter")
        user.resize(50, 12)
        user.wait_until(lambda screen: "Linz" in screen)
        user.store("form-filter-50x12")
        user.type(DOWN + ENTER)
        user.wait_for("did not fit: nights: rooms are\r\nlet for an even number of nights.)")
        user.wait_for("nights (1 to 14):")
        user.wait_for("3")
        user.type("\x7f4" + ENTER)
        assert user.result() == {"name": "Ann", "nights": 4, "town": "Mainz"}
        assert "name" not in user.shown
