"""Runs mutation tests: ``python -m tests.mutants`` changes the code at random places and counts the
changes that a test notices.

Cosmic Ray makes each change, a *mutant*, in a clone of a commit. The tests of the changed package
then run in the clone until one fails. The mutants are drawn once and kept in a file, so that other
commits are measured with the same mutants as far as the changed lines still exist. Results are kept
in a file as well, and an interrupted run continues from it. A failed test runs again alone: if it
then passes, it fails at random and does not count.
"""

import argparse
import ast
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.randomised import SEED

FOLDER = Path("build/mutants")
SOURCE = "src/anabranch"
ROOMS = ("_engine", "_durable", "stores", "agents")
SETTINGS = f"[cosmic-ray]\nmodule-path = {[f'{SOURCE}/{room}' for room in ROOMS]}\n"
QUERY = "SELECT module_path, start_pos_row, start_pos_col, operator_name, occurrence FROM mutation_specs"
PYTEST = "timeout -s INT -k 30 {} .venv/bin/python -m pytest -xq -p no:cacheprovider --timeout=300"
"""A test may take long without hanging, since mutation tests run next to other work."""
LINE = "{result:8} {seconds:5} s  {place}  {operator}  {killer}\n"


def run(*command: str | Path, folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def clone(folder: Path, commit: str) -> None:
    """Check the commit out, with an environment that has the project's dependencies and the clone's source."""
    run("git", "clone", "--quiet", "--no-checkout", Path.cwd(), folder)
    run("git", "checkout", "--quiet", commit, folder=folder)
    run(sys.executable, "-m", "venv", "--without-pip", ".venv", folder=folder)
    (site,) = folder.glob(".venv/lib/python*/site-packages")
    (site / "clone.pth").write_text(f"{folder / 'src'}\n{sysconfig.get_path('purelib')}\n")


def types(source: str) -> list[tuple[Any, Any]]:
    """Return the start and end of annotations and type unions: mutants there change no behaviour."""
    tree = ast.parse(source)
    kinds: list[Any] = [getattr(node, "annotation", None) for node in ast.walk(tree)]
    kinds += [getattr(node, "returns", None) for node in ast.walk(tree)]
    named = (node for top in tree.body if isinstance(top, ast.Assign) for node in ast.walk(top))
    kinds += [node for node in named if isinstance(getattr(node, "op", None), ast.BitOr)]
    return [((at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)) for at in kinds if at]


def draw(folder: Path) -> Iterator[dict[str, str]]:
    """Yield mutants from each package in turn: draw a random place, then a random change for it."""
    tool = Path(sys.executable).with_name("cosmic-ray")
    (folder / "settings").write_text(SETTINGS)
    run(tool, "init", "settings", "session", folder=folder)
    left_out = {file: types(file.read_text()) for file in folder.glob("src/**/*.py")}
    places: dict[tuple[str, int, int], list[tuple[str, str]]] = {}
    for path, row, column, *change in sqlite3.connect(folder / "session").execute(QUERY):
        if not any(start <= (row, column) <= end for start, end in left_out[folder / path]):
            places.setdefault((path, row, column), []).append((change[0], str(change[1])))
    chance = random.Random(SEED)
    order = chance.sample(sorted(places), len(places))
    rooms = [[place for place in order if f"/{room}/" in place[0]] for room in ROOMS]
    for place in [place for turn in zip(*rooms, strict=False) for place in turn][:60]:
        operator, nth = chance.choice(sorted(places[place]))
        run(tool, "apply", place[0], operator, nth, folder=folder)
        patch = run("git", "diff", "--no-color", SOURCE, folder=folder)
        run("git", "checkout", "--quiet", SOURCE, folder=folder)
        yield {"place": "{}:{}:{}".format(*place), "operator": operator, "patch": patch}


def failing(folder: Path, limit: float, *tests: str) -> str:
    """Return the name of the first failing test, or how the run ended; return "" if all pass."""
    command = [*PYTEST.format(limit).split(), *tests]
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as own:
        Path(own).chmod(0o755)  # a Postgres server of another user runs in this folder
        env = os.environ | {"TMPDIR": own, "ANABRANCH_SEED": SEED}
        with Path(own, "said").open("w") as said:
            ended = subprocess.call(command, cwd=folder, env=env, stdout=said, stderr=said)
        output = Path(own, "said").read_text(errors="replace")
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output)
    return [*failed, f"exit code {ended}"][0] if ended else ""


def measure(mutant: dict[str, str], folder: Path, limit: float) -> dict[str, Any]:
    """Return the mutant with its outcome. Test files that name the changed module run first."""
    begun, path, patch = time.monotonic(), Path(mutant["place"]), mutant["patch"]
    tests = folder / "tests" / path.parts[2].strip("_")
    files = sorted([*tests.rglob("test_*.py"), *Path(f"{tests}_support").rglob("test_*.py")])
    near = [file for file in files if path.name.split(".")[0] in file.read_text()]
    parts = near, [file for file in files if file not in near]
    left = [[str(file.relative_to(folder)) for file in part] for part in parts if part]
    left_out, killer = list[str](), ""
    apply = ["git", "apply", "-C1"]
    gone = subprocess.run(apply, cwd=folder, input=patch, text=True, check=False).returncode
    while not gone and left:
        killer = failing(folder, limit, *left_out, *left[0])
        if not killer:
            left.pop(0)
        elif "::" not in killer or failing(folder, limit, killer):
            break
        else:
            left_out.append(f"--deselect={killer}")
            left[0] = left[0][left[0].index(killer.split("::")[0]) :]
    run("git", "checkout", "--quiet", SOURCE, folder=folder)
    result = {"result": "gone" if gone else "killed" if killer else "survived", "killer": killer}
    return mutant | result | {"seconds": round(time.monotonic() - begun), "random": left_out}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--commit", default="HEAD", help="whose source and tests")
    parser.add_argument("--limit", type=float, default=1200, help="seconds for a run of the tests")
    options = parser.parse_args()
    commit = run("git", "rev-parse", "--short", options.commit).strip()
    drawn, measured = (FOLDER / f"{name}.jsonl" for name in (f"drawn-{SEED}", commit))
    FOLDER.mkdir(parents=True, exist_ok=True)
    measured.touch()
    known = {one["patch"]: one for one in map(json.loads, measured.read_text().splitlines())}
    sums: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="m") as scratch:
        Path(scratch).chmod(0o755)
        clone(folder := Path(scratch, "clone"), commit)
        if not drawn.exists():
            drawn.write_text("".join(json.dumps(one) + "\n" for one in draw(folder)))
        for mutant in map(json.loads, drawn.read_text().splitlines()):
            if (one := known.get(mutant["patch"])) is None:
                one = measure(mutant, folder, options.limit)
                with measured.open("a") as file:
                    file.write(json.dumps(one) + "\n")
            sums[one["place"].split("/")[2], one["result"]] += 1
            sys.stdout.write("{result:8} {seconds:4} s {place} {operator} {killer}\n".format(**one))
    for room in ROOMS:
        counts = (f"{sums[room, name]} {name}" for name in ("killed", "survived", "gone"))
        sys.stdout.write(f"{room}: {', '.join(counts)}\n")


if __name__ == "__main__":
    main()
