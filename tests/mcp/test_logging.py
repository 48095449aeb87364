"""The server's log: the root logger stays the application's, and a handled error is one line."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch import BranchContext, StepFailed, run_tool, tool

APPLICATION = '''
import asyncio
import logging

from mcp import Client

from anabranch import BranchContext, StepFailed, tool
from anabranch.mcp import create_server


def charge(card: str) -> str:
    raise ValueError(f"the card {card}\\nis refused")


@tool
async def pay(ctx: BranchContext, handle: bool) -> str:
    """Pay."""
    try:
        return await ctx.step(charge, "1234")
    except StepFailed:
        if not handle:
            raise
        return "not paid"


async def main(handle: bool) -> None:
    server = create_server("shop", [pay])
    assert not logging.root.handlers, logging.root.handlers
    assert logging.root.level == logging.WARNING
    async with Client(server) as client:
        result = await client.call_tool("pay", {"handle": handle})
        assert result.is_error is not handle, result
'''


def log_of(program: str, folder: Path) -> list[str]:
    source = folder / "shop.py"
    source.write_text(APPLICATION + program)
    ended = subprocess.run(
        [sys.executable, source], check=False, capture_output=True, text=True, cwd=folder
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


def test_a_step_that_fails_and_is_handled_is_one_line_of_log(tmp_path: Path) -> None:
    [line] = log_of("asyncio.run(main(True))", tmp_path)
    assert "'pay/charge.1' failed with ValueError: the card 1234\\nis refused" in line
    assert f"line 12 of {tmp_path / 'shop.py'}" in line


def test_an_unhandled_step_failure_is_logged_once_with_its_traceback(tmp_path: Path) -> None:
    lines = log_of("asyncio.run(main(False))", tmp_path)
    assert sum("Traceback" in line for line in lines) == 1
    assert any("in charge" in line for line in lines)


def test_the_applications_log_setup_does_not_change(tmp_path: Path) -> None:
    [line] = log_of(
        'logging.basicConfig(level="ERROR", format="mine %(message)s")\n'
        'create_server("shop", [pay])\n'
        "assert logging.root.level == logging.ERROR\n"
        'logging.getLogger("other").error("shown")\n',
        tmp_path,
    )
    assert line == "mine shown"


async def test_the_traceback_of_a_handled_failure_is_logged_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    async def tries(ctx: BranchContext) -> str:
        try:
            await ctx.step(open, "/no/such/file")
        except StepFailed:
            return "handled"
        return "opened"

    with caplog.at_level(logging.DEBUG, "anabranch.engine"):
        assert await run_tool(tries) == "handled"
    line, traceback = [each for each in caplog.records if each.name == "anabranch.engine"]
    assert (line.levelname, line.exc_info) == ("WARNING", None)
    assert traceback.levelname == "DEBUG"
    assert traceback.exc_info
