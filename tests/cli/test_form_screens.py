"""Forms as they are seen on a screen of 80 columns and 24 lines, and after it was made smaller."""

from pathlib import Path

import pytest

from tests.cli.terminals import DOWN, ENTER, terminal

FORMED = str(Path(__file__).with_name("formed.py"))


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
