"""``anabranch dev``: tools that are loaded again when their source changes."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import httpx2
import pytest

from anabranch import run_tool
from anabranch._terminal import Console, UsageError
from anabranch.agents import CalledTool
from anabranch.cli import _reloading
from anabranch.cli._reloading import ReloadedTools
from anabranch.testing import MockClient
from tests.chat.web import events_in, message, resume
from tests.cli.developing import developing, write
from tests.patience import PATIENCE

pytestmark = pytest.mark.usefixtures("own_modules")

TOOLS = """
from anabranch import BranchContext, tool
from words import WORD

@tool
async def greet(ctx: BranchContext, name: str = "Ann") -> str:
    "Greet."
    return f"{WORD} {name}"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write(tmp_path / "words.py", 'WORD = "Hello"')
    return write(tmp_path / "tools.py", TOOLS)


async def greeting(tools: ReloadedTools) -> object:
    [found] = [each for each in tools.offered_tools(()) if each.name == "greet"]
    assert isinstance(found, CalledTool)
    return await run_tool(found.tool, {}, MockClient())


async def test_a_changed_file_and_a_module_that_it_imports_are_loaded_again(file: Path) -> None:
    shown = StringIO()
    tools = ReloadedTools([str(file)], Console(shown))
    write(file, TOOLS.replace("{name}", "dear {name}"))
    await tools.reload()
    assert await greeting(tools) == "Hello dear Ann"
    write(file.with_name("words.py"), 'WORD = "Servus"')
    await tools.reload()
    assert await greeting(tools) == "Servus dear Ann"
    assert shown.getvalue() == "Reloaded.\n" * 2


@pytest.mark.parametrize(
    ("code", "line", "what"),
    [
        pytest.param("1 / 0", 'words.py", line 1, in <module>', "ZeroDivisionError", id="raises"),
        pytest.param("WORD =", 'words.py", line 1', "SyntaxError", id="no Python"),
    ],
)
async def test_an_error_shows_the_authors_lines_and_the_tools_stay(
    file: Path, code: str, line: str, what: str
) -> None:
    shown = StringIO()
    tools = ReloadedTools([str(file)], Console(shown))
    words = file.with_name("words.py")
    write(words, code)
    await tools.reload()
    assert line in shown.getvalue()
    assert f"\n{what}" in shown.getvalue()
    assert "_reloading.py" not in shown.getvalue()
    assert "importlib" not in shown.getvalue()
    assert await greeting(tools) == "Hello Ann"
    write(words, 'WORD = "Again"')
    await tools.reload()
    assert await greeting(tools) == "Again Ann"


async def test_a_file_that_python_refuses_without_a_line_is_named(file: Path) -> None:
    shown = StringIO()
    tools = ReloadedTools([str(file)], Console(shown))
    write(file, "\0")
    await tools.reload()
    problem = "cannot be loaded: SyntaxError: source code string cannot contain null bytes."
    assert shown.getvalue() == f"Not reloaded; the old tools stay.\n{file} {problem}\n"


async def test_code_that_loads_for_long_is_reported(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reloading, "PATIENCE", 0)
    go = file.with_name("go")
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        go.touch()

    console = Console(StringIO())
    tools = ReloadedTools([str(file)], console)
    monkeypatch.setattr(console, "say", say)
    write(file, f"import pathlib\nwhile not pathlib.Path({str(go)!r}).exists(): pass\n{TOOLS}")
    await tools.reload()
    assert lines == [_reloading.SLOW, "Reloaded."]


async def test_a_package_that_was_deleted_and_is_back_is_loaded_again(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    write(package / "words.py", 'WORD = "Hello"')
    write(tmp_path / "tools.py", TOOLS.replace("from words", "from package.words"))
    with developing(tmp_path) as address:
        async with (
            httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client,
            client.stream("GET", "/dev/events") as stream,
        ):
            lines = (line async for line in stream.aiter_lines() if line)
            assert '"problem": ""' in await anext(lines)
            away = package.rename(tmp_path / "away")
            assert "No module named 'package" in await anext(lines)
            away.rename(package)
            assert '"problem": ""' in await anext(lines)


async def test_two_tools_of_one_name_are_not_loaded(file: Path) -> None:
    shown = StringIO()
    tools = ReloadedTools([str(file)], Console(shown))
    twice = TOOLS + TOOLS.partition("\n\n")[2].replace("def greet", "def other")
    write(file, twice.replace("@tool", "@tool(name='greet')"))
    await tools.reload()
    assert "Two tools, or plugins, are called greet. Leave one of them out." in shown.getvalue()


def test_a_file_that_does_not_load_at_first_ends_the_command(file: Path) -> None:
    write(file, "1 / 0")
    with pytest.raises(UsageError, match="cannot be loaded"):
        ReloadedTools([str(file)], Console(StringIO()))


ASKING = """
from pydantic import BaseModel
from anabranch import BranchContext, tool
from mcp.server.mcpserver import MCPServer

class Seats(BaseModel):
    seats: int

@tool
async def book(ctx: BranchContext, flight: str) -> str:
    "Book."
    advice = await ctx.sample("Which airline?")
    answer = await ctx.elicit(Seats, "How many?")
    return f"{flight}: {advice.text}, {answer.action}"

server = MCPServer("theirs")

@server.tool()
def theirs() -> str:
    return "one"
"""


async def said(client: httpx2.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("/agui", json=body)
    assert response.status_code == 200, response.text
    return events_in(response.text)


def answered(interrupt: dict[str, Any], payload: dict[str, Any], run: str) -> dict[str, Any]:
    entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}
    return resume(entry, run=run)


async def test_a_call_asks_the_user_and_does_something_else_after_an_edit(tmp_path: Path) -> None:
    file = write(tmp_path / "tools.py", ASKING)
    (tmp_path / "replies.json").write_text('[{"text": "Any"}]')
    with developing(tmp_path, "--model", "script:replies.json") as address:
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
            await _play(client, file)


async def _play(client: httpx2.AsyncClient, file: Path) -> None:
    assert (await client.get("/rooms")).json() == ["calls", "dev"]
    names = [each["name"] for each in (await client.get("/tools")).json()]
    assert names == ["branch_self", "book", "theirs"]
    events = await said(client, message('/book {"flight": "AB1"}'))
    [form] = events[-1]["outcome"]["interrupts"]
    events = await said(client, answered(form, {"seats": 2}, "r3"))
    assert "AB1: Any, accept" in json.dumps(events)
    async with client.stream("GET", "/dev/events") as stream:
        lines = (line async for line in stream.aiter_lines() if line)
        assert await anext(lines) == 'data: {"number": 0, "problem": ""}'
        changed = ASKING.replace("{flight}:", "{flight} again:").replace('"one"', '"two"')
        write(file, changed)
        assert await anext(lines) == 'data: {"number": 1, "problem": ""}'
        events = await said(client, message("/theirs", thread="t2", run="r4"))
        assert "two" in json.dumps(events)
        write(file, "book =")
        state = json.loads((await anext(lines)).removeprefix("data: "))
        assert state["number"] == 2
        assert "SyntaxError" in state["problem"]
    calls = (await client.get("/calls")).json()
    assert calls["shows"] == "values"
    assert [each["tool"] for each in calls["calls"]] == ["theirs", "book"]


RAISING = """
from anabranch import BranchContext, ToolError, tool

def divide(what: int) -> float:
    return 1 / what

@tool
async def broken(ctx: BranchContext) -> float:
    "Divide."
    return divide(0)

@tool
async def stepping(ctx: BranchContext) -> float:
    "Divide, in a step."
    return await ctx.step(divide, 0)

@tool
async def refusing(ctx: BranchContext) -> str:
    "Refuse."
    raise ToolError("Not today.")
"""


async def test_the_author_sees_where_a_tool_has_raised(tmp_path: Path) -> None:
    write(tmp_path / "tools.py", RAISING)
    with developing(tmp_path) as address:
        async with httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client:
            shown: dict[str, str] = {}
            for name in ("broken", "stepping", "refusing"):
                events = await said(client, message(f"/{name}", thread=name, run=name))
                [result] = [each for each in events if each["type"] == "TOOL_CALL_RESULT"]
                shown[name] = result["content"]
    for name in ("broken", "stepping"):
        assert 'tools.py", line 5, in divide\n    return 1 / what' in shown[name]
        assert "ZeroDivisionError: division by zero" in shown[name]
        assert "site-packages" not in shown[name]
    assert shown["broken"].startswith("Error executing tool broken (error ")
    assert shown["refusing"] == "Not today."
