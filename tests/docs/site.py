"""The documentation site: its pages, staged as Zensical reads them (``make docs``).

The pages are staged where they are in the repository, beside README.md and examples/, so that one
and the same link leads somewhere on the site, in a checkout and where the repository is shown.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.api.reference import reference_pages
from tests.docs.pages import ROOT

__all__ = ["REFERENCE", "build", "stage"]

STAGED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE",
    "changelog.d/README.md",
)
FOLDERS = ("docs", "examples")
REFERENCE = "docs/reference"
"""Where the pages made of the docstrings are staged."""


def stage(folder: Path) -> None:
    """Fill ``folder``/build/docs with all that the site is made of, and copy its settings."""
    pages = folder / "build" / "docs"
    shutil.rmtree(pages, ignore_errors=True)
    for name in STAGED:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, pages / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("test_*", "__pycache__")
        shutil.copytree(ROOT / name, pages / name, ignore=ignored)
    (pages / REFERENCE).mkdir()
    for module, text in reference_pages().items():
        (pages / REFERENCE / f"{module}.md").write_text(text, encoding="utf-8")
    if folder != ROOT:
        shutil.copy(ROOT / "zensical.toml", folder)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build ``folder``/build/site; whatever Zensical warns of is a failure."""
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def main() -> int:
    """Build the site of this checkout."""
    stage(ROOT)
    done = build(ROOT)
    sys.stderr.write(done.stdout + done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
