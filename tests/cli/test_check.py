"""``anabranch check``: findings as JSON on stdout, in words on stderr."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Run

CARELESS = """
import time

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import BranchContext, ToolError, tool


class Name(BaseModel):
    name: str


def note(word):
    with open("notes", "a") as file:
        file.write(word)


@tool
async def careless(ctx: BranchContext, times: int = 1) -> str:
    for _ in range(times):
        await ctx.elicit(Name, f"It is {time.time_ns()}. Who?", key="who")
    return "done"


@tool
async def hidden(ctx: BranchContext, greeting: str) -> str:
    now = vars(time)["time_ns"]
    await ctx.step(note, "x")
    await ctx.elicit(Name, f"{greeting}! It is {now()}. Who?", key="who")
    return "done"


@tool
async def right(ctx: BranchContext) -> str:
    await ctx.log("info", "begun")
    await ctx.step(note, "x")
    await ctx.elicit(Name, "Who?", key="who")
    if (await ctx.sample("Why?")).text == "No.":
        raise ToolError("No, then.")
    await ctx.notify("done")
    return "done"


server = MCPServer("server")
"""


@pytest.fixture(autouse=True)
def folder(workplace: Path) -> Path:
    (workplace / "careless.py").write_text(CARELESS)
    return workplace


def check(run: Run, *arguments: str, answers: list[Any] | None = None) -> tuple[int, Any, str]:
    options: list[str] = []
    if answers is not None:
        Path("answers.json").write_text(json.dumps(answers))
        options = ["--answers", "answers.json"]
    status, out, shown = run("check", *arguments, *options)
    return status, json.loads(out) if out else None, shown


ADA = {"key": "who", "accept": {"name": "Ada"}}


def test_findings_are_printed_as_json_and_described_on_stderr(run: Run) -> None:
    status, value, shown = check(run, "careless.py")
    (found,) = value
    assert (status, found["rule"], found["file"]) == (1, "clock", "careless.py")
    line = f"careless.py:{found['line']}:{found['column']}: clock: `time.time_ns()` "
    assert shown.startswith(line)
    assert shown.endswith("anabranch: 1 finding.\n")


def test_a_terminal_shows_that_nothing_was_found(run: Run) -> None:
    done = run.at_terminal("check", "careless.py", "right")
    assert done == (0, "[]\n", "Nothing found in the source.\n")


@pytest.mark.parametrize("target", ["careless.py", "careless", "careless:right"])
def test_one_tool_can_be_chosen(run: Run, target: str) -> None:
    assert check(run, target, "right") == (0, [], "")


def test_a_run_finds_faults_that_reading_does_not(run: Run, folder: Path) -> None:
    assert check(run, "careless.py", "hidden") == (0, [], "")
    status, value, shown = check(run, "careless.py", "hidden", "greeting=Hello", answers=[ADA])
    (found,) = value
    assert (status, found["rule"], found["step"]) == (1, "different-ask", "who")
    assert found["first"].startswith('{"message": "Hello! It is ')
    assert f"  first run: {found['first']}\n  replay:    {found['second']}\n" in shown
    assert (folder / "notes").read_text() == "x"


def test_a_run_of_a_tool_that_is_right_finds_nothing(run: Run, folder: Path) -> None:
    status, value, shown = check(run, "careless.py", "right", answers=[ADA, {"sample": "Yes."}])
    assert (status, value) == (0, [])
    assert shown == '[info] begun\nWho?\n> accept {"name": "Ada"}\n[1] done\n'
    assert (folder / "notes").read_text() == "x"


def test_a_tool_that_fails_is_reported_and_is_no_finding(run: Run) -> None:
    answers = [ADA, {"sample": "No."}, {"decline": True}]
    status, value, shown = check(run, "careless:right", answers=answers)
    assert (status, value) == (0, [])
    assert "The tool ended with ToolError: No, then.\n" in shown
    assert "No question used the answer" in shown


def test_an_error_of_its_author_is_shown_by_their_lines(run: Run, folder: Path) -> None:
    broken = folder / "broken.py"
    broken.write_text(
        "from anabranch import tool\n\n\n@tool\nasync def broken(ctx) -> str:\n    return {}['x']\n"
    )
    status, value, shown = check(run, "broken.py", "broken", answers=[])
    assert (status, value) == (0, [])
    assert f"  File \"{broken}\", line 6, in broken\n    return {{}}['x']\n" in shown
    assert "frames of libraries are left out" in shown
    assert "scheduler.py" not in shown


@pytest.mark.parametrize(
    ("arguments", "answers", "problem"),
    [
        (["careless.py", "missing"], None, "It offers: careless, hidden, right."),
        (["careless.py"], [], "Name the TOOL to run: careless.py offers careless, hidden, right."),
        (["careless.py", "hidden", "greeting=Hello"], None, "give --answers FILE as well"),
        (["careless.py", "hidden", "--json", "{}"], None, "give --answers FILE as well"),
        (["careless.py", "careless", "times=many"], [], "times must be a whole number"),
        (["careless.py", "hidden"], [], "greeting"),
        (["careless:server"], None, "offers only a server, and no anabranch tool"),
    ],
)
def test_a_target_that_cannot_be_checked_is_wrong_usage(
    run: Run, arguments: list[str], answers: list[Any] | None, problem: str
) -> None:
    status, value, shown = check(run, *arguments, answers=answers)
    assert (status, value) == (2, None)
    assert problem in shown


def test_a_tool_without_a_source_is_wrong_usage(run: Run, folder: Path) -> None:
    made = "from anabranch import BranchContext, tool\nexec('async def f(ctx): ...')\nt = tool(f)\n"
    (folder / "careless_too.py").write_text(made)
    status, value, shown = check(run, "careless_too.py")
    assert (status, value) == (2, None)
    assert "cannot be checked" in shown


def test_the_real_command_keeps_stdout_for_the_result(folder: Path) -> None:
    (folder / "careless.py").write_text(
        CARELESS.replace("class Name", "print('loaded')\nclass Name")
    )
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "check", "careless.py"],
        check=False,
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
    )
    assert [found["rule"] for found in json.loads(done.stdout)] == ["clock"]
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "loaded")
