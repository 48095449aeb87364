"""A traceback shows the author's own lines, and leaves out the lines of libraries."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from anabranch import run_tool
from anabranch._text import PrintableFormatter
from anabranch.cli._stores import CALL_KEY, new_key
from anabranch.errors import FULL, format_for_author
from anabranch.testing import MockClient

TOOLS = """
import json

from anabranch import BranchContext, tool


def parse(text):
    return json.loads(text)


@tool
async def inside(ctx: BranchContext) -> str:
    return {}["x"]


@tool
async def below(ctx: BranchContext) -> str:
    return parse("{")


@tool
async def caused(ctx: BranchContext) -> str:
    try:
        parse("{")
    except ValueError as error:
        raise LookupError("no offer") from error


@tool
async def several(ctx: BranchContext) -> str:
    try:
        parse("{")
    except ValueError as error:
        raise ExceptionGroup("two", [error, KeyError("y")])
"""


FORGETFUL = """
import asyncio
import gc
import warnings

from pydantic import BaseModel

from anabranch import BranchContext, run_tool, tool
from anabranch.testing import MockClient


class Trip(BaseModel):
    city: str


@tool
async def forget(ctx: BranchContext) -> str:
    ctx.elicit(Trip, "Where?")
    ctx.log("info", "forgotten")
    ctx.step(asyncio.sleep, 0)
    ctx.sample("rivers")
    warnings.warn("something else")
    return "done"


asyncio.run(run_tool(forget, {}, MockClient()))
gc.collect()
"""


def test_the_server_of_a_call_names_the_lines_where_an_await_was_forgotten(tmp_path: Path) -> None:
    """The tool runs while its file is loaded, because a server that has ended has no time to warn."""
    file = tmp_path / "forgetful.py"
    file.write_text(FORGETFUL)
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "serve", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, CALL_KEY: new_key()},
    )
    shown = re.findall(r'  File "(.*)", line \d+, in forget\n    (.*)\n', done.stderr)
    assert sorted(shown) == [
        (str(file), 'ctx.elicit(Trip, "Where?")'),
        (str(file), 'ctx.log("info", "forgotten")'),
        (str(file), 'ctx.sample("rivers")'),
        (str(file), "ctx.step(asyncio.sleep, 0)"),
    ]
    assert done.stderr.count("File ") == len(shown)
    assert "UserWarning: something else" in done.stderr


CHATTY = """
print("Listening on 7000 \x1b[2J", flush=True)
from mcp.server.mcpserver import MCPServer
server = MCPServer("chatty")
server.run("stdio")
"""


def test_a_banner_on_the_stdout_of_a_server_is_one_line(tmp_path: Path) -> None:
    """The SDK logs a traceback."""
    file = tmp_path / "chatty.py"
    file.write_text(CHATTY)
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "list", f"command:{sys.executable} {file}"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    about = "left out a line of a server's stdout that is not an MCP message"
    shown = "Listening on 7000 \N{REPLACEMENT CHARACTER}[2J"
    assert done.stderr == f"WARNING mcp.client.stdio: {about}: {shown}\n"
    assert json.loads(done.stdout) == []


@pytest.fixture
def tools(tmp_path: Path) -> ModuleType:
    module = ModuleType("authors")
    file = tmp_path / "authors.py"
    file.write_text(TOOLS)
    exec(compile(TOOLS, str(file), "exec"), vars(module))  # noqa: S102 - a file of an author
    return module


async def shown(tools: ModuleType, name: str) -> list[str]:
    """Return the lines, without carets, that a log shows for the tool's exception."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each tool raises another one
        await run_tool(vars(tools)[name], {}, MockClient())
    here = raised.value.__traceback__
    assert here is not None
    text = format_for_author(raised.type, raised.value, here.tb_next)
    return [line for line in text.splitlines() if not set(line) <= set(" ^~|")]


async def test_only_the_authors_frames_are_shown(tools: ModuleType, tmp_path: Path) -> None:
    *lines, note = await shown(tools, "inside")
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/authors.py", line 13, in inside',
        '    return {}["x"]',
        "KeyError: 'x'",
    ]
    assert note.endswith(f"frames of libraries are left out; {FULL}=full shows them)")


async def test_the_line_of_a_library_that_raised_it_is_shown(tools: ModuleType) -> None:
    lines = await shown(tools, "below")
    places = [line.split(", in ")[1] for line in lines if line.startswith("  File")]
    assert places == ["below", "parse", "raw_decode"]


async def test_causes_are_shortened_alike(tools: ModuleType) -> None:
    lines = await shown(tools, "caused")
    places = [line.split(", in ")[1] for line in lines if line.startswith("  File")]
    assert places == ["caused", "parse", "raw_decode", "caused"]
    assert "LookupError: no offer" in lines


async def test_members_of_a_group_are_shortened_alike(tools: ModuleType) -> None:
    lines = await shown(tools, "several")
    places = [line.split(", in ")[1] for line in lines if "  File" in line]
    assert places == ["several", "parse", "raw_decode", "several", "several", "parse", "raw_decode"]


async def test_all_frames_are_shown_on_request(
    tools: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = await shown(tools, "inside")
    monkeypatch.setenv(FULL, "full")
    every = await shown(tools, "inside")
    assert len(every) > len(few) + 5
    assert every[-1] == "KeyError: 'x'"


def test_all_frames_are_shown_without_an_authors_frame() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    last = raised.value.__traceback__
    assert last is not None
    text = format_for_author(ValueError, raised.value, last.tb_next)
    assert text.count('  File "') == 3
    assert "left out" not in text


def test_a_record_of_a_log_has_the_short_form(tools: ModuleType) -> None:
    formatter = PrintableFormatter("%(message)s")
    with pytest.raises(ValueError, match="Expecting") as raised:
        tools.parse("{")
    error = (raised.type, raised.value, raised.tb)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "bad", None, error)
    lines = formatter.format(record).splitlines()
    assert lines[0] == "bad"
    assert all(line.startswith("    ") for line in lines[1:])
    assert "frames of libraries are left out" in lines[-1]
