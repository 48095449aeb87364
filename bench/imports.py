"""The cost of a start: the package's imports and its commands, each in a fresh interpreter.

Every row is a ratio of CPU time, which other work on the machine disturbs little. The sides are an
interpreter that does nothing, and ``import pydantic``, which every tool needs. One row compares with
``mcp.types``, which each server of tools imports anyway; there, the time of a bare interpreter is subtracted
from both sides. Commands on tools and calls are compared with ``mcp.server``, which each server imports; the
processes that a command starts count as well. The processes write compiled byte code to a separate folder, and
the first turn does not count.
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
SERVER = "import mcp.server"
PUBLIC = "from anabranch import *"
IMPORT = "import anabranch"
COMMANDS = {
    "anabranch --help": ["--help"],
    "anabranch --version": ["--version"],
    "anabranch tree list": ["tree", "list"],
}
AGAINST_SERVER = {
    "anabranch call --help": (["call", "--help"], 0.4),
    "anabranch list FILE": (["list", "tools.py"], 0.6),
    "anabranch calls list": (["calls", "list", "--store", "sqlite:///calls.db"], 0.7),
    "anabranch call FILE TOOL": (["call", "tools.py", "greet"], 1.9),
}
"""Commands, each with its goal as a multiple of ``import mcp.server``."""

TOOL = '''from anabranch import BranchContext, tool


@tool
async def greet(ctx: BranchContext) -> str:
    """Greet."""
    return "Hello"
'''


def cpu_seconds(arguments: list[str], environment: Mapping[str, str], folder: str) -> float:
    """Return the CPU time of a fresh interpreter, and of the processes that it starts."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    programs = {BARE: ["-c", "pass"]}
    programs |= {
        statement: ["-c", statement] for statement in (PYDANTIC, SDK, SERVER, IMPORT, PUBLIC)
    }
    programs |= {name: ["-m", "anabranch", *words] for name, words in COMMANDS.items()}
    programs |= {name: ["-m", "anabranch", *words] for name, (words, _) in AGAINST_SERVER.items()}
    programs["anabranch tree list"] += ["--store", "sqlite:///threads.db"]
    with TemporaryDirectory() as folder:
        Path(folder, "tools.py").write_text(TOOL)
        for store in ("threads.db", "calls.db"):
            Path(folder, store).touch()
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        turns = [
            {
                name: cpu_seconds(arguments, environment, folder)
                for name, arguments in programs.items()
            }
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
    for name, (_, most) in AGAINST_SERVER.items():
        ratio = median(turn[name] / turn[SERVER] for turn in turns)
        rows.append(Row(NAME, f"{name} / {SERVER}", ratio, goal=most))
    return rows
