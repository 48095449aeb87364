"""Follow README.md and docs/start.md with only the wheel and its requirements installed (``make
readme``).

The script runs in a separate environment without extras and without this project's tools. An import or
a file that a reader would miss fails here.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import anabranch
from tests.docs.pages import ROOT, environment, parse, workplace

PAGES = ("README.md", "docs/start.md")
CHAT = ("dev", "web")
"""Commands of the extra ``chat``."""
INSTALLED = Path(sys.executable).parent / "anabranch"


def follow(page: str) -> int:
    """Run the examples of a page in an empty folder with the example tools; return their number."""
    with tempfile.TemporaryDirectory() as name:
        folder = workplace(Path(name), f'#!/bin/sh\nexec "{INSTALLED}" "$@"\n')
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        examples = list(parse(ROOT / page).examples())
        for example in examples:
            example.evaluate()
        sys.path.remove(str(folder))
        os.chdir(ROOT)
    return len(examples)


def helps() -> list[str]:
    """Ask each command for its help, and return the commands' names.

    A command whose module needs an extra names the extra and how to install it.
    """
    names = re.findall(r"^ *│? ?([a-z]+)  ", asked("--help"), re.MULTILINE)
    for name in names:
        said = asked(name, "--help")
        assert said.startswith("Usage: anabranch") or (name in CHAT and "Install it: " in said), (
            said
        )
    return names


def asked(*arguments: str) -> str:
    """Return the output of the installed command."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(
            [INSTALLED, *arguments],
            cwd=name,
            env=environment(Path(name)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    return done.stdout.strip()


def main() -> None:
    """Follow the pages."""
    assert Path(anabranch.__file__).is_relative_to(sys.prefix), "this is not the wheel's anabranch"
    names = helps()
    assert {"call", "serve", "web"} <= set(names), names
    sys.stdout.write(f"--help of {', '.join(names)}\n")
    for page in PAGES:
        sys.stdout.write(f"{page}: {follow(page)} examples\n")


if __name__ == "__main__":
    main()
