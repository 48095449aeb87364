"""The real command at a pseudo-terminal, played by keyboard."""

from pathlib import Path

from tests.cli.terminals import ESCAPE, PROMPT, terminal

CHATTED = str(Path(__file__).with_name("chatted.py"))


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


def test_questions_at_once_and_a_sample_are_answered_by_keyboard(served: Path) -> None:
    """In the handshake era, where the questions are two requests at the same time."""
    with terminal("call", str(served), "confirm_and_think", "--era", "handshake") as person:
        person.wait_for("Left?")
        person.wait_for("(y/N)")
        assert "Right?" not in person.shown
        person.type("y\r")
        person.wait_for("Right?")
        person.wait_for("(y/N)")
        person.type("\x1b")
        person.wait_for("user: Why?")
        person.wait_for("assistant:")
        person.type("Because.\r")
        assert person.result() == ["accept", "cancel", "Because."]


def test_a_word_that_begins_with_y_accepts_nothing(served: Path) -> None:
    with terminal("call", str(served), "confirm") as person:
        person.wait_for("(y/N)")
        person.type("maybe")
        person.wait_for("maybe")
        person.type("\r")
        person.wait_for("Type y or n, and Enter")
        person.store("consent")
        person.type("\x15yes\r")
        assert person.result() == ["accept"]


def test_keys_typed_before_a_question_of_yes_or_no_do_not_answer_it(tmp_path: Path) -> None:
    """The first of these is in a buffer of the prompt, when the question is asked."""
    environment = {"XDG_DATA_HOME": str(tmp_path)}
    with terminal("chat", CHATTED, whole=True, environment=environment) as person:
        person.wait_for(PROMPT)
        person.type("/book place=Ulm\ryes\r")
        person.wait_for("(y/N)")
        person.type(ESCAPE)
        person.wait_for("Ulm: cancel")
        person.wait_for(PROMPT)
        person.type("/exit\r")


def test_keys_typed_during_the_work_of_a_tool_do_not_answer_a_question(served: Path) -> None:
    with terminal("call", str(served), "confirm") as person:
        person.type("yes\r")
        person.wait_for("(y/N)")
        person.type(ESCAPE)
        assert person.result() == ["cancel"]
