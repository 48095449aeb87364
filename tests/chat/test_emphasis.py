"""Emphasis in languages without spaces around it, in the terminal."""

from tests.chat.emphasis import READ, in_terminal


def test_a_terminal_reads_emphasis_next_to_punctuation() -> None:
    assert {text: in_terminal(text) for text in READ} == READ
