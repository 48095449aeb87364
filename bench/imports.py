"""What it costs to start: the package's imports and its commands, each in a fresh interpreter.

Every row is a ratio of CPU time, so that other work on the machine disturbs it little: against an
interpreter that does nothing, and against ``import pydantic``, which every tool needs. One row
compares with ``mcp.types``, which whatever serves a tool imports anyway: what a bare interpreter
takes is subtracted from both there. Byte code is compiled: the processes write it to a folder of
their own, and the first turn does not count.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

from bench.measure import Row

NAME = "imports"
TURNS = 7
BARE = "python -c pass"
PYDANTIC = "import pydantic"
SDK = "import mcp.types"
PUBLIC = "from anabranch import *"
IMPORT = "import anabranch"
COMMANDS = {
    "anabranch --help": ["--help"],
    "anabranch --version": ["--version"],
    "anabranch tree list": ["tree", "list"],
}


def cpu_seconds(arguments: list[str], environment: Mapping[str, str]) -> float:
    """Return the CPU time that a fresh interpreter takes, in user and in system mode."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    programs = {BARE: ["-c", "pass"]}
    programs |= {statement: ["-c", statement] for statement in (PYDANTIC, SDK, IMPORT, PUBLIC)}
    programs |= {name: ["-m", "anabranch", *words] for name, words in COMMANDS.items()}
    with TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "ANABRANCH_STORE": f"sqlite:///{Path(folder, 'threads.db')}",
            "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode")),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        turns = [
            {name: cpu_seconds(arguments, environment) for name, arguments in programs.items()}
            for _ in range(TURNS + 1)
        ]
    return _rows(turns[1:])


def _rows(turns: list[dict[str, float]]) -> list[Row]:
    net = [(turn[PUBLIC] - turn[BARE]) / (turn[SDK] - turn[BARE]) for turn in turns]
    rows = [Row(NAME, f"{PUBLIC} / {SDK}", median(net), goal=1)]
    for name, goal in ((IMPORT, 0.25), (PUBLIC, 0.25), *((name, 0.35) for name in COMMANDS)):
        for other in (BARE, PYDANTIC):
            ratio = median(turn[name] / turn[other] for turn in turns)
            rows.append(Row(NAME, f"{name} / {other}", ratio))
        rows.append(Row(NAME, name, min(turn[name] for turn in turns), "s of CPU", goal))
    return rows
