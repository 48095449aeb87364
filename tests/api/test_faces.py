"""Modules import other packages through their public face; tests import helpers from harness
modules.
"""

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"

LAZY = ["_asking", "_durable", "_terminal", "agents", "chat", "engines", "models", "rounds"]
"""The packages with names that are loaded when they are first used."""

ROOM_OF = {
    "api": "_asking",
    "durable": "_durable",
    "engine": "_engine",
    "engine_support": "_engine",
    "frameworks": "adapters",
    "recorded": "_durable",
    "sagas": "mcp",
}
"""The rooms of those folders of tests whose names differ. A folder's tests may enter their own room."""


@cache
def exported(package: str) -> str:
    """Return the source of a package's ``__init__.py``."""
    face = SOURCE.joinpath(*package.split("."), "__init__.py")
    return face.read_text(encoding="utf-8") if face.exists() else ""


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and the private names that it takes from them, at any
    nesting level.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            for alias in node.names:
                full = f"{module}.{alias.name}"
                is_inner = is_module(full) and f'"{alias.name}"' not in exported(module)
                is_test = module.startswith("tests")
                yield full if is_inner or is_test or alias.name.startswith("_") else module


def is_private(name: str) -> bool:
    """Return whether a name is private to its package."""
    package, *inner = name.split(".")
    if package != "anabranch" or len(inner) < 2:
        return False
    room = inner.pop(0)
    is_package = bool(exported(f"anabranch.{room}"))
    return any(each.startswith("_") for each in inner) or (room.startswith("_") and is_package)


def is_own(path: Path, name: str) -> bool:
    """Return whether a file is in the package of a name, or in the folder of that package's tests."""
    root = TESTS if path.is_relative_to(TESTS) else SOURCE / "anabranch"
    folders = path.relative_to(root).parts[:-1]
    return name.split(".")[1] in {ROOM_OF.get(each, each) for each in folders}


def imports_below(root: Path) -> list[tuple[Path, str]]:
    return sorted({(path, name) for path in root.rglob("*.py") for name in imported(path)})


IMPORTS = imports_below(TESTS)


def test_no_module_imports_a_test_module() -> None:
    found = [each for each in IMPORTS if each[1].startswith("tests.") and ".test_" in each[1]]
    assert found == []


def test_no_test_imports_private_modules_of_another_package() -> None:
    """A harness module in the other package's test folder may import private modules, and serves
    all tests.
    """
    found = [each for each in IMPORTS if is_private(each[1])]
    assert len(found) > 100
    assert [each for each in found if not is_own(*each)] == []


def test_no_module_imports_private_modules_of_another_package() -> None:
    found = [each for each in imports_below(SOURCE) if is_private(each[1])]
    assert len(found) > 100
    assert [each for each in found if not is_own(*each)] == []


@pytest.mark.parametrize("room", LAZY)
def test_a_lazy_package_loads_each_of_its_names(room: str) -> None:
    face = import_module(f"anabranch.{room}")
    names = lazily_imported(SOURCE / "anabranch" / room / "__init__.py")
    modules = {path.stem for path in (SOURCE / "anabranch" / room).glob("*.py")}
    assert names
    assert modules.isdisjoint(
        names
    )  # a loaded submodule would hide an exported name that equals its own
    assert [name for name in names if not hasattr(face, name)] == []


def lazily_imported(face: Path) -> set[str]:
    """Return the names that ``__init__.py`` imports for type checkers alone."""
    blocks = [
        node.body
        for node in ast.parse(face.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for body in blocks for node in body if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}
