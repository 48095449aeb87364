"""Reads the tables of states from the design page."""

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "design.md"


def documented(corner: str, states: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return a table of the page: the next state, by event and state."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = "".join(f" `{state}` |" for state in states)
    start = lines.index(f"| {corner} |{heads}") + 2
    table: dict[str, dict[str, str]] = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        event, *places = (each.strip().strip("`") for each in line.strip("|").split("|"))
        table[event] = {state: then for state, then in zip(states, places, strict=True) if then}
    return table
