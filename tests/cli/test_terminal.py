"""The real command at a pseudo-terminal, played by keyboard."""

from pathlib import Path

from tests.cli.terminals import terminal


def test_the_demo_is_played_by_keyboard() -> None:
    with terminal("demo") as person:
        person.wait_for("round 1 ends with 1 question: pick_card/analyze#1/sample.1 (the model)")
        person.wait_for("Pick a card!")
        person.wait_for("Card number (1 to 10):")
        person.type("9\r")
        person.wait_for("There are only 5 cards.")
        person.wait_for("Card number (1 to 10):")
        person.type("0\r")
        person.wait_for("must be 1 to 10")
        person.type("\x7f2\r")
        outcome = person.result()
    assert isinstance(outcome, dict)
    assert outcome["picked"] in outcome["message"]


def test_questions_at_once_and_a_sample_are_answered_by_keyboard(served: Path) -> None:
    """In the handshake era, where the questions are two requests at the same time."""
    with terminal("call", str(served), "confirm_and_think", "--era", "handshake") as person:
        person.wait_for("Left?")
        person.wait_for("(y/N)")
        assert "Right?" not in person.shown
        person.type("y")
        person.wait_for("Right?")
        person.wait_for("(y/N)")
        person.type("\x1b")
        person.wait_for("user: Why?")
        person.wait_for("assistant:")
        person.type("Because.\r")
        assert person.result() == ["accept", "cancel", "Because."]
