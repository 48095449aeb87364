"""Checks the files that differ from ``main``, in about a minute (``make quick``).

Each changed file is formatted, linted and type-checked, and the layers of all imports are checked.
The tests that run are the changed ones and those of each package with a changed file. The full gate
decides, since a change may break the tests of another package.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
TESTS = {"_asking": "api", "_terminal": "cli", "testing": "api"}
"""Test folders that have another name than their package; top-level modules belong to the public API."""


def changed() -> list[Path]:
    """Return the Python files that differ from ``main``, including new files."""
    against = ["git", "diff", "--name-only", "--diff-filter=d", "--merge-base", "main"]
    listed = [_said(*against), _said("git", "ls-files", "--others", "--exclude-standard")]
    names = "".join(listed).splitlines()
    return [Path(name) for name in dict.fromkeys(names) if name.endswith(".py")]


def tests_of(files: Iterable[Path]) -> list[str]:
    """Return the test files and folders that belong to some source files."""
    found: dict[str, None] = {}
    for file in files:
        if file.parts[:2] == ("src", "anabranch"):
            room = file.parts[2].removesuffix(".py")
            folder = Path("tests", TESTS.get(room, room.strip("_")))
            found[str(folder if (ROOT / folder).is_dir() else Path("tests", "api"))] = None
        elif file.parts[:2] == ("tests", "suites"):
            found |= {"tests/engines": None, "tests/stores": None}
        elif file.parts[0] in ("tests", "docs") and "interop" not in file.parts:
            found[str(file if file.name.startswith("test_") else file.parent)] = None
    inside = [path for path in found if any(str(each) in found for each in Path(path).parents)]
    return [path for path in found if path not in inside]


def typed(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the files for each type checker; as in the full gate, mypy checks the tests."""
    found: dict[str, list[str]] = {"pyright": [], "mypy": []}
    for file in files:
        strict = file.parts[0] in ("src", "examples") or file.parts[:2] == ("tests", "typing")
        if "frameworks" not in file.parts:  # these files need packages from another environment
            found["pyright" if strict else "mypy"].append(str(file))
    return found


def main() -> int:
    """Run the checks in parallel and return the exit status."""
    files = changed()
    if not files:
        print("No Python file differs from main.")
        return 0
    names = [str(file) for file in files]
    checks: list[list[str | Path]] = [
        [BIN / "ruff", "format", "--check", *names],
        [BIN / "ruff", "check", *names],
        [BIN / "lint-imports", "--no-logo"],
    ]
    checks += [[BIN / checker, *its] for checker, its in typed(files).items() if its]
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    running = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for command in checks
    ]
    status = 0
    if tests := tests_of(files):
        print("testing", *tests, flush=True)
        pytest = [sys.executable, "-m", "pytest", "-q", "--numprocesses=2", "--dist=loadfile"]
        status = subprocess.run([*pytest, *tests], cwd=ROOT, check=False).returncode
        status = 0 if status == 5 else status  # 5 is pytest's status for "no tests"
    for check in running:
        said, _ = check.communicate()
        if check.returncode:
            sys.stdout.write(said.decode())
            status = 1
    return status


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
