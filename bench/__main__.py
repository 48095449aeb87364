"""``python -m bench`` runs all benchmarks, prints one table, and writes the table to ``bench/README.md``.

``python -m bench NAME …`` runs the named benchmarks, and only prints their rows.
"""

from __future__ import annotations

import multiprocessing
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from bench.catalogue import BENCHMARKS, run
from bench.measure import Row

README = Path(__file__).with_name("README.md")
START, END = "<!-- the table, as make bench writes it -->", "<!-- end of the table -->"
HEADER = ["benchmark", "measured", "result", "goal", "reached"]


def as_table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table, with padded columns."""
    lines = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def main(names: Sequence[str]) -> int:
    """Run the benchmarks with these names; without names, run all."""
    if unknown := set(names) - set(BENCHMARKS):
        sys.stderr.write(f"No benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}\n")
        return 2
    rows: list[Row] = []
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning, max_tasks_per_child=1) as processes:
        for name in names or BENCHMARKS:
            sys.stderr.write(f"{name} …\n")
            rows += processes.submit(run, name).result()
    table = f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}\n\n{as_table(rows)}"
    print(table)
    if not names:
        before, _, rest = README.read_text().partition(START)
        after = rest.partition(END)[2]
        README.write_text(f"{before}{START}\n\n{table}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
