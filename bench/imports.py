"""``import anabranch``, against ``import mcp.types``, each in a fresh interpreter.

A tool's module imports the one, whatever serves it the other; an author should not notice that
the library is there too. What a bare interpreter takes to start is subtracted from both. Files are
in the operating system's cache, and byte code is compiled: the first turn does not count.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from time import perf_counter

from bench.measure import Row

NAME = "imports"
TURNS = 7


def start(statement: str) -> float:
    """Return the seconds that a fresh interpreter takes to run ``statement``."""
    before = perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return perf_counter() - before


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    statements = {name: f"import {name}" for name in ("anabranch", "mcp.types", "pydantic")}
    ratios: dict[str, list[float]] = {"anabranch": [], "pydantic": []}
    for turn in range(TURNS + 1):
        empty = start("")
        took = {name: start(statement) - empty for name, statement in statements.items()}
        if turn:
            for name, found in ratios.items():
                found.append(took[name] / took["mcp.types"])
    what = "import anabranch / import mcp.types"
    return [Row(NAME, what, median(ratios["anabranch"]), goal=1)]
