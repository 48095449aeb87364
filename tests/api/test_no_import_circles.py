"""No module of a package imports itself through others, type-checking imports included."""

import ast
import importlib.util
from pathlib import Path

import pytest

import anabranch

PACKAGE = Path(anabranch.__file__).parent
ROOMS = sorted(f"anabranch.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py"))

# A module refers to its scopes, and each scope to its module.
ESSENTIAL = [["anabranch.replay_check._scopes", "anabranch.replay_check._sources"]]


def modules_of(room: str) -> dict[str, Path]:
    """Return the files of a package by module name."""
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    found: dict[str, Path] = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join([room, *(part for part in parts if part != "__init__")])
        found[name] = path
    return found


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of ``known`` that the file imports, at any nesting level."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(inner & known.keys() or {node.module})
    return found & known.keys()


def circles_in(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules that can reach themselves, each with its circle."""
    reach = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    circles = {
        tuple(sorted(other for other in reach[name] if name in reach[other]))
        for name in graph
        if name in reach[name]
    }
    return sorted(map(list, circles))


@pytest.mark.parametrize("room", ROOMS)
def test_no_module_imports_itself_by_way_of_others(room: str) -> None:
    modules = modules_of(room)
    assert len(modules) > 2
    circles = circles_in({name: imports_of(path, modules) for name, path in modules.items()})
    assert circles == (ESSENTIAL if room == "anabranch.replay_check" else [])


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert circles_in(graph) == [["b", "c"]]
