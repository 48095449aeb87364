"""``--log-format json`` writes one JSON object per log record, with the id of its call."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from anabranch import BranchContext, ToolError, tool
from anabranch._terminal import JsonFormatter
from anabranch.mcp import create_server
from anabranch.stores import open_store

logger = logging.getLogger("an.author")


@pytest.fixture
def written() -> Iterator[StringIO]:
    handler = logging.StreamHandler(StringIO())
    handler.setFormatter(JsonFormatter())
    logger.addHandler(handler)
    yield handler.stream
    logger.removeHandler(handler)


def note(what: str) -> None:
    logger.warning("%s", what)


@tool
async def chatter(ctx: BranchContext) -> str:
    """Log in the body, in a step and in its undo; the last two run in threads."""
    note("body")
    await ctx.step(note, "step", undo=lambda _: note("undo"))
    raise ToolError("It is wrong.")


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_log_record_in_a_call_has_the_id_of_the_call(written: StringIO, mode: str) -> None:
    store = open_store("memory:")
    note("before")
    async with Client(create_server("s", [chatter], store=store), mode=mode) as client:
        await client.call_tool("chatter")
    [call] = await store.calls(10)
    await store.close()
    records: list[dict[str, Any]] = [json.loads(each) for each in written.getvalue().splitlines()]
    assert [(each["message"], each.get("call")) for each in records] == [
        ("before", None),
        *((name, call.call_id) for name in ("body", "step", "undo")),
    ]
    assert list(records[0]) == ["time", "level", "logger", "message"]


def test_a_log_record_with_any_text_is_one_line() -> None:
    """The record is formatted and not logged: pytest sends logged text to another process as UTF-8."""
    message = "a\nb \u2028 \x1b[0m \ud800"
    try:
        raise ValueError("two\nlines")
    except ValueError:
        made = logging.LogRecord("a", logging.ERROR, "a.py", 1, message, None, sys.exc_info())
    [line] = JsonFormatter().format(made).splitlines()
    record = json.loads(line)
    assert record["message"] == message
    assert "\nValueError: two\nlines\n" in record["error"]
    assert line.isascii()


@pytest.mark.parametrize("command", ["serve", "web"])
def test_commands_have_the_log_format_option(command: str, tmp_path: Path) -> None:
    target = tmp_path / "tools.py"
    target.write_text("import logging\nlogging.getLogger('mine').warning('loaded')\n")
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", command, str(target), "--log-format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [json.loads(each) for each in done.stderr.splitlines() if each.startswith("{")]
    assert [(each["logger"], each["message"]) for each in lines] == [("mine", "loaded")]
    assert done.returncode == 2  # the file has no tools
