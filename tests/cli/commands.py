"""The reference of the command line, made from the commands' help (``make api`` writes
docs/commands.md).
"""

import os
import re
import sys
from pathlib import Path

from anabranch.cli._commands import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands.md"
OPENING = """# Commands and options

Each command with its help, as `anabranch COMMAND --help` prints it. [The command line](command-line.md) shows the commands at
work. `make api` writes this page.
"""


def written() -> str:
    """Return the page: an opening, then a section for each command."""
    os.environ.pop("ANABRANCH_STORE", None)
    program = sys.argv[0]
    sys.argv[0] = "anabranch"  # some usage lines begin with the name of the process
    try:
        text = app.generate_docs(output_format="markdown", recursive=True)
    finally:
        sys.argv[0] = program
    sections = text[text.index("\n## anabranch") :]
    sections = sections.replace("```console", "```sh")  # usage lines, which are not to be run
    sections = re.sub(r"<(https?://[^>]+)>", r"\1", sections)
    return OPENING + re.sub(r"[ \t]+$", "", sections, flags=re.MULTILINE).rstrip() + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(written(), encoding="utf-8")


if __name__ == "__main__":
    main()
