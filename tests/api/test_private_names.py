"""Only listed files use private names of other libraries, each for a stated reason."""

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest

import anabranch

ROOT = Path(anabranch.__file__).parent

REASONS: dict[str, str] = {
    "_engine/canary.py": "it refuses tasks that lack the attribute of asyncio's that is read first",
    "_engine/waits.py": "asyncio and anyio do not show publicly what a task waits for; the canary"
    " checks every name",
    "_engine/strands.py": "sys._getframe is documented; only the caller's frames show that"
    " asyncio.as_completed starts a task from a set",
    "_terminal/interrupts.py": "os._exit is documented; only it leaves at once, whatever threads do",
    "agents/_remote_tools.py": "as cli/_targets.py",
    "adapters/openai_agents.py": "a state of the OpenAI Agents SDK has no public way to the run's context",
    "cli/_targets.py": "FastMCP has no public way to the SDK's server that it is built on",
    "cli/_combined_server.py": "the SDK has no public way to compose servers",
    "cli/_output.py": "os._exit is documented; only it ends a process that a thread holds",
    "mcp/_client.py": "the SDK reads the tools' output schemas by itself, and has no public way to them;"
    " its own check of a result may never end",
    "mcp/_fastmcp_tool.py": "FastMCP has no public way to the log level that a client has set, to the"
    " SDK's context of a request, to an extension or a handler of a server, or to a mounted tool",
    "mcp/_request.py": "the SDK has no public way to read the log level that a client has set",
    "mcp/_sdk_tool.py": "the SDK has no public way to a server's tool or its handlers",
    "mcp/_server.py": "install() adds tools, an extension and a lifespan to a server that exists: the"
    " SDK makes tools of functions only, and takes the others in the constructor only",
    "mcp/_tool_link.py": "the SDK has no public way to ask whether a connection has ended",
}
"""Every file below src/anabranch that uses a private name of a library, and why it has to."""

DOCUMENTED = {"_asdict", "_fields", "_make", "_replace"}
"""Public methods of named tuples, underscored so that they cannot clash with a field."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def defined_in(tree: ast.AST) -> set[str]:
    """Return the names that a module defines: functions, classes, variables, fields."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


def used_in(node: ast.AST, own: set[str], inherited: AbstractSet[str]) -> Iterator[str]:
    """Yield the attributes and imported names that ``node`` uses, private or not."""
    match node:
        case ast.Import(names=names):
            yield from (part for name in names for part in name.name.split("."))
        case ast.ImportFrom(module=str(module), names=names) if not _is_ours(module):
            yield from (*module.split("."), *(name.name for name in names))
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            yield from {name} - own - inherited
        case ast.Attribute(attr=name):
            yield from {name} - own
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr" | "setattr"),
            args=[_, ast.Constant(value=str(name)), *_],
        ):
            yield from {name} - own
        case ast.Constant(value=str(text)) if "._" in text and " " not in text:
            yield from () if _is_ours(text) or text.startswith(".") else text.split(".")
        case _:
            pass


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "anabranch"


def private_names(tree: ast.AST, inherited: AbstractSet[str] = frozenset()) -> set[str]:
    """Return the private names in ``tree`` that neither the module nor this project's base classes
    define.
    """
    own = defined_in(tree)
    found = (name for node in ast.walk(tree) for name in used_in(node, own, inherited))
    return {name for name in found if is_private(name)}


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """Return the private names that each file uses, by the file's path."""
    trees = {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in ROOT.rglob("*.py")
    }
    inherited = {name for tree in trees.values() for name in defined_in(tree)}
    names = {path: private_names(tree, inherited) for path, tree in trees.items()}
    return {path: used for path, used in names.items() if used}


def test_private_names_of_libraries_are_used_only_where_a_reason_is_given(
    found: dict[str, set[str]],
) -> None:
    """A private name can change in any release, so each file that needs one is listed."""
    assert {path: used for path, used in found.items() if path not in REASONS} == {}


def test_every_file_with_a_reason_still_needs_it(found: dict[str, set[str]]) -> None:
    """A name that its library has made public leaves the list."""
    assert REASONS.keys() - found.keys() == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import anyio._core._eventloop", "_core _eventloop"),
        ("from mcp.server import _base", "_base"),
        ("from sqlalchemy.engine._py_row import BaseRow", "_py_row"),
        ("server._tools", "_tools"),
        ("server._tools = {}", "_tools"),
        ("server.lowlevel._tools.get(1)", "_tools"),
        ("getattr(task, '_fut_waiter', None)", "_fut_waiter"),
        ("MODULE = 'anyio._backends._asyncio'", "_backends _asyncio"),
        ("class Host(Server):\n    def run(self): return self._tools", "_tools"),
        ("class Host:\n    def __init__(self): self._tools = {}\nHost()._tools", ""),
        ("from anabranch._engine import Call", ""),
        ("LOGGER = 'anabranch._engine'", ""),
        ("pair._replace(x=1)", ""),
        ("import sys\nsys.__name__", ""),
    ],
)
def test_a_use_of_a_private_name_is_found(source: str, names: str) -> None:
    assert private_names(ast.parse(source)) == set(names.split())
