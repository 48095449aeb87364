import os
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from mcp.server.mcpserver import MCPServer

from anabranch import BranchContext, tool
from anabranch._terminal import UsageError
from anabranch.cli._combined_server import assemble, tool_names
from anabranch.cli._targets import Found, is_url, load, split_target
from anabranch.mcp import ServerOptions, create_server
from tests.mcp.harness import MODERN, Answers, connected, echo, text_of

pytestmark = pytest.mark.usefixtures("workplace")

TOOLS = """
from anabranch import BranchContext, HandoffTool, tool

@tool
async def first(ctx: BranchContext) -> int:
    return 1

class Second(HandoffTool):
    async def before(self) -> int: return 1
    async def client(self, handoff: int, ctx: BranchContext) -> int: return 1
    async def after(self, handoff: int, picked: int) -> int: return 1

second = Second()
alias = second
three = 3
"""
CLASS_ONLY = TOOLS.partition("second =")[0].replace("@tool\n", "")
SERVER = """
from mcp.server.mcpserver import MCPServer
{name} = MCPServer("{name}")

@{name}.tool()
def {tool}() -> int:
    return 1
"""
KEYS = ["k" * 32]
OPTIONS = ServerOptions(keys=KEYS)


def names(found: Found) -> list[str]:
    return [tool.name for tool in found.tools]


@pytest.mark.parametrize("target", ["target.py", "./target.py", "target"])
def test_a_file_or_module_offers_every_tool_once(target: str) -> None:
    Path("target.py").write_text(TOOLS)
    assert names(load([target])) == ["first", "second"]


def test_a_target_can_be_an_absolute_path_and_import_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "neighbour_of_target.py").write_text(TOOLS)
    (folder / "target.py").write_text("from neighbour_of_target import first")
    assert names(load([str(folder / "target.py")])) == ["first"]


def test_a_file_in_a_package_can_import_its_neighbours_by_dots() -> None:
    inner = Path("shop") / "tools"
    inner.mkdir(parents=True)
    for folder in (inner.parent, inner):
        (folder / "__init__.py").touch()
    (inner.parent / "words.py").write_text("hello = 'hello'")
    (inner / "near.py").write_text("from ..words import hello")
    (inner / "beside.py").touch()
    (inner / "served.py").write_text(f"from .near import hello\nimport beside\n{TOOLS}")
    found = load([str(inner / "served.py")])
    assert names(found) == ["first", "second"]
    assert found.tools[0].returned_by.__module__ == "shop.tools.served"


def test_a_file_is_loaded_alone_when_another_package_has_the_name_of_its_own() -> None:
    folder = Path("json")
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "decoder.py").write_text(TOOLS)
    assert names(load([str(folder / "decoder.py")])) == ["first", "second"]


def test_a_module_in_a_package_is_found() -> None:
    Path("pack").mkdir()
    Path("pack/target.py").write_text(TOOLS)
    assert names(load(["pack.target"])) == ["first", "second"]


@pytest.mark.parametrize("target", ["target.py:second", "target:second", "target:Holder.held"])
def test_an_attribute_is_offered_alone(target: str) -> None:
    Path("target.py").write_text(f"{TOOLS}\nclass Holder:\n    held = second\n")
    assert names(load([target])) == ["second"]


def test_several_targets_are_offered_together() -> None:
    Path("a.py").write_text(TOOLS)
    Path("b.py").write_text(SERVER.format(name="bee", tool="buzz"))
    found = load(["a.py", "b.py"])
    assert (names(found), [server.name for server in found.servers]) == (
        ["first", "second"],
        ["bee"],
    )


def test_a_file_called_like_a_module_in_use_does_not_replace_it() -> None:
    import json

    Path("json.py").write_text(TOOLS)
    assert names(load(["json.py"])) == ["first", "second"]
    assert sys.modules["json"] is json


def test_the_output_of_a_target_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    Path("target.py").write_text(f"print('hello')\n{TOOLS}")
    load(["target.py"])
    assert capsys.readouterr() == ("", "hello\n")


def test_output_below_python_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    Path("target.py").write_text(
        "import os, subprocess, sys\nos.write(1, b'native ')\n"
        f"subprocess.run([sys.executable, '-c', 'print(1)'], check=True)\n{TOOLS}"
    )
    load(["target.py"])
    os.write(1, b"protocol")
    out, err = capfd.readouterr()
    assert (out, err.split()) == ("protocol", ["native", "1"])


@pytest.mark.parametrize(
    ("target", "text", "problem"),
    [
        ("missing.py", None, "There is no file missing.py"),
        ("folder/missing.py", None, "There is no file folder/missing.py"),
        ("missing_module", None, "There is no module 'missing_module'"),
        ("no such", None, "There is no module 'no such'"),
        ("", None, "There is no module ''"),
        ("target.missing", TOOLS, "cannot be loaded: ModuleNotFoundError"),
        ("target.py:missing", TOOLS, "there is no attribute 'missing'"),
        ("target.py:three", TOOLS, "is 3, which is neither a tool, a plugin nor an MCPServer"),
        ("target.py", "1 / 0", r"target.py cannot be loaded: ZeroDivisionError.*line 1 of"),
        ("target.py", "def", r"cannot be loaded: SyntaxError: .*line 1\)"),
        ("target.py", "import nowhere_at_all", "ModuleNotFoundError: No module named"),
        ("target.py", "exit(3)", r"ends the process when it is loaded \(3\)"),
        (
            "target.py",
            "three = 3",
            "offers nothing: no tool, no plugin and no server at module level.$",
        ),
        ("target.py", CLASS_ONLY, "Make an instance of Second at module level"),
        ("target.txt", TOOLS, "There is no module 'target.txt'"),
        ("./target.txt", TOOLS, "it is no Python file"),
        ("http://127.0.0.1/mcp", None, "is already a server"),
        ("command:uvx x", None, "is already a server"),
    ],
)
def test_a_wrong_target_is_named_in_a_sentence(target: str, text: str | None, problem: str) -> None:
    if text is not None:
        Path("target.txt" if target.endswith("txt") else "target.py").write_text(text)
    with pytest.raises(UsageError, match=problem):
        load([target])


def test_only_http_is_an_address() -> None:
    assert is_url("http://localhost/mcp")
    assert is_url("https://example.com/mcp")
    assert not is_url("http_tools.py")


def test_a_drive_letter_is_no_module() -> None:
    with pytest.raises(UsageError, match=r"There is no file C:\\tools.py"):
        split_target("C:\\tools.py")


@tool
async def loose(ctx: BranchContext) -> int:
    return 1


def server_with(name: str, *tools: str) -> MCPServer[None]:
    server: MCPServer[None] = MCPServer(name)
    for each in tools:
        server.add_tool(saying(each), name=each, structured_output=False)
    return server


def saying(word: str) -> Callable[[], str]:
    return lambda: word


def test_tools_alone_make_a_server() -> None:
    server = assemble(Found(tools=[loose]), OPTIONS)
    assert (server.name, tool_names(server)) == ("anabranch", ["loose"])


def test_tools_are_added_to_the_server_that_is_there() -> None:
    theirs = server_with("theirs", "own")
    server = assemble(Found([loose], [theirs]), OPTIONS)
    assert server is theirs
    assert tool_names(server) == ["own", "loose"]


def test_a_tool_that_the_server_already_has_is_served_unchanged() -> None:
    from anabranch.mcp import create_server

    theirs = create_server("theirs", [loose])
    server = assemble(Found([loose], [theirs]), OPTIONS)
    assert tool_names(server) == ["loose"]


def test_several_servers_become_one() -> None:
    first, second = server_with("first", "a"), server_with("second", "b", "c")
    server = assemble(Found([], [first, second]), OPTIONS)
    assert (server.name, tool_names(server)) == ("first", ["a", "b", "c"])

    async def call() -> object:
        return await server.call_tool("c", {})

    assert "text='c'" in str(anyio.run(call))


async def test_tools_of_ours_on_several_servers_ask_as_before() -> None:
    @tool
    async def sign(ctx: BranchContext) -> str:
        return (await ctx.sample("Sign here.")).text

    servers = [create_server("first", []), create_server("second", [sign])]
    server = await anyio.to_thread.run_sync(lambda: assemble(Found([], servers), OPTIONS))
    async with connected(server, MODERN, Answers(sample=echo)) as client:
        assert text_of(await client.call_tool("sign")) == "<Sign here.>"


def test_two_servers_with_the_same_tool_are_refused() -> None:
    found = Found([], [server_with("first", "a"), server_with("second", "a")])
    with pytest.raises(UsageError, match="Two servers have a tool named a"):
        assemble(found, OPTIONS)
