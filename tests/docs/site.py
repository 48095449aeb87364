"""The documentation site: its pages, staged as Zensical reads them (``make docs``).

The pages keep their places in the repository, next to README.md and examples/, so that each link
works on the site, in a checkout and on the repository's web page.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.api.reference import reference_pages
from tests.docs.pages import ROOT

STAGED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "LICENSE",
    "changelog.d/README.md",
    "bench/README.md",
)
FOLDERS = ("docs", "examples")
REFERENCE = "docs/reference"
"""Where the pages made of the docstrings are staged."""


def stage(folder: Path) -> None:
    """Fill ``folder``/build/docs with all sources of the site, and copy its settings."""
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
    (pages / "llms.txt").write_text(index_for_models(), encoding="utf-8")
    (pages / "llms-full.txt").write_text(text_for_models(), encoding="utf-8")
    if folder != ROOT:
        shutil.copy(ROOT / "zensical.toml", folder)


def index_for_models() -> str:
    """Return the index of the pages in the format of https://llmstxt.org, made of docs/README.md."""
    summary = re.search(r"\*\*.*?\n\n", _text("README.md"), re.DOTALL)
    assert summary is not None
    lines = ["# anabranch", "", f"> {' '.join(summary[0].split())}"]
    for line in _text("docs/README.md").splitlines():
        row = re.fullmatch(r"\| \[(.+?)\]\(([\w-]+)\.md\) \| (.+) \|", line)
        if line.startswith("## "):
            lines += ["", line, ""]
        elif row:
            lines.append(f"- [{row[1]}](docs/{row[2]}.html): {row[3]}")
    return "\n".join(lines) + "\n"


def text_for_models() -> str:
    """Return the text of all pages but the API reference, in the order of the navigation."""
    named = re.findall(r'"([\w./-]+\.md)"', _text("zensical.toml"))
    pages = [name for name in named if not name.startswith(REFERENCE) and name != "docs/api.md"]
    return "\n".join(f"<!-- {name} -->\n{_text(name)}" for name in pages)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build ``folder``/build/site; any warning of Zensical is a failure."""
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
