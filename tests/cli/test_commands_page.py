"""The reference of the command line is the help of its commands."""

from tests.cli.commands import PAGE, written


def test_the_page_of_commands_has_their_present_help() -> None:
    assert PAGE.read_text(encoding="utf-8") == written(), "run `make api` and commit what it writes"
