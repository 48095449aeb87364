"""The runner of the examples in README.md and docs/.

What a fenced block of each language means:

    python    is run, with top-level ``await``; all blocks of a page share one namespace
    console   ``$ command`` lines are run in bash, ``> `` continues one, and the lines below must
              be exactly what the command writes to stdout; stdin is empty, and
              port 8080 is a free port of this page's
    json      must be JSON
    sh, text  are for the reader: commands that wait, install or open something; diagrams

A block with ``title="NAME"`` is that file: it is written into the page's folder before it is run.
No block is skipped: another language is an error.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sybil import Document, Example, Region, Sybil
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

import anabranch
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(anabranch.__file__).parents[1]
"""Where anabranch is imported from: the sources, or what a wheel has installed."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FOR_THE_READER = {"sh", "text"}
PORT = "8080"
TITLE = r'(?: title="(?P<title>[^"]+)")?'


COMMAND = f'#!/bin/sh\nexec "{sys.executable}" -m anabranch "$@"\n'
"""The source of an ``anabranch`` program that starts a new interpreter."""


def workplace(folder: Path, source: str = COMMAND) -> Path:
    """Fill ``folder`` with the example tools, ``python``, an ``anabranch`` of ``source``; return it."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, folder)
    programs = {"anabranch": source, "python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'}
    (folder / "bin").mkdir()
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a command run in ``folder``: its own ``anabranch``, nothing
    configured.

    The user's data is in ``folder`` as well.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANABRANCH_") and name != "COLUMNS"  # pages show 80 columns
    }
    programs = os.pathsep.join([str(folder / "bin"), own.get("PATH", os.defpath)])
    sources = os.pathsep.join(filter(None, [str(PACKAGES), own.get("PYTHONPATH")]))
    data = str(folder / "data")
    return {
        **own,
        "PATH": programs,
        "PYTHONPATH": sources,
        "XDG_DATA_HOME": data,
        "XDG_CONFIG_HOME": data,
    }


def parse(text_or_path: Path | str) -> Document:
    """Return the page, ready for its examples to be evaluated in order."""
    parsers = [
        block_parser("python", run_python),
        block_parser("console", run_console),
        block_parser("json", read_json),
    ]
    if isinstance(text_or_path, Path):
        page = Sybil(parsers).parse(text_or_path)
    else:
        page = Document(text_or_path, "page.md")
        for parser in parsers:
            for region in parser(page):
                page.add(region)
    # A real module: annotations are resolved in one, and undos are found in one by name.
    module = types.ModuleType(f"page_{re.sub(r'[^a-z0-9]', '_', Path(page.path).stem.lower())}")
    sys.modules[module.__name__] = module
    page.namespace = module.__dict__
    return page


def block_parser(
    language: str, evaluate: Callable[[Example], str | None]
) -> Callable[[Document], Iterable[Region]]:
    """Return a parser of a language's blocks; before ``evaluate`` runs a block, its files are written."""
    lexer = RawFencedCodeBlockLexer(re.compile(rf"{language}{TITLE}$\n", re.MULTILINE))

    def written_first(example: Example) -> str | None:
        if title := example.region.lexemes["title"]:
            file = Path(title)
            file.parent.mkdir(exist_ok=True)
            file.write_text(example.parsed, encoding="utf-8")
        return evaluate(example)

    def parse_blocks(document: Document) -> Iterable[Region]:
        for region in lexer(document):
            region.parsed, region.evaluator = region.lexemes["source"], written_first
            yield region

    return parse_blocks


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, source) of every fenced block of a page."""
    found = re.finditer(rf"^```(\S*){TITLE}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(block[1], block[3]) for block in found]


def run_python(example: Example) -> None:
    """Run a block; a block that awaits gets an event loop."""
    source = "\n" * (example.line + example.parsed.line_offset) + example.parsed
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, example.path, "exec", flags=flags, dont_inherit=True)
    body: Callable[[], object] = types.FunctionType(code, example.namespace)
    made = body()
    if inspect.iscoroutine(made):
        asyncio.run(made)


def read_json(example: Example) -> None:
    json.loads(example.parsed)


def run_console(example: Example) -> str | None:
    """Run a block's commands in one shell and return the differences from the page."""
    commands = _commands(example.parsed.replace(PORT, _port(example.namespace)))
    fence = "---- next command ----"
    script = "".join(
        f"{command}\ns=$?; printf '%s\\n' '{fence}'; (exit $s)\n" for command, _ in commands
    )
    folder = Path.cwd()
    done = subprocess.run(
        ["bash", "-c", script],  # noqa: S607 - the reader's shell, wherever it is
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    *outputs, rest = done.stdout.split(f"{fence}\n")
    for (command, expected), written in zip(commands, outputs, strict=False):
        if written != expected:
            return f"$ {command}\nexpected:\n{expected}\nwritten:\n{written}\n{done.stderr}"
    if len(outputs) < len(commands):
        return f"the shell ended at $ {commands[len(outputs)][0]}\n{rest}\n{done.stderr}"
    return None


def _port(page: dict[str, Any]) -> str:
    """Return the free port of a page, whose commands name it 8080."""
    if PORT not in page:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            page[PORT] = str(free.getsockname()[1])
    return str(page[PORT])


def _commands(block: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif line.startswith("> "):
            command, output = found.pop()
            found.append((f"{command}\n{line[2:]}", output))
        else:
            command, output = found.pop()
            found.append((command, f"{output}{line}\n"))
    return found
