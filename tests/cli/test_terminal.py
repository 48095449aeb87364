"""The real command at a pseudo-terminal, played by keyboard."""

from pathlib import Path

from tests.cli.terminals import ESCAPE, terminal


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
