"""The imports of the tests: helpers from harness modules, and the package by the faces of its rooms."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src"

ROOM_OF = {
    "durable": "_durable",
    "engine": "_engine",
    "engine_support": "_engine",
    "frameworks": "adapters",
    "recorded": "_recorded",
    "sagas": "mcp",
}
"""The rooms of those folders of tests whose names differ. A folder's tests may enter their own room."""


@cache
def exported(package: str) -> str:
    """Return the source of a package's face."""
    face = SOURCE.joinpath(*package.split("."), "__init__.py")
    return face.read_text(encoding="utf-8") if face.exists() else ""


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and private names in them, wherever the import stands."""
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
    """Return whether a name lies behind the face of its room."""
    package, room, *inner = name.split(".")
    if package != "anabranch" or not inner:
        return False
    has_face = "__all__" in exported(
        f"anabranch.{room}"
    )  # the modules are the face of a room without
    return any(each.startswith("_") for each in inner) or (room.startswith("_") and has_face)


def is_own(path: Path, name: str) -> bool:
    folders = path.relative_to(TESTS).parts[:-1]
    return name.split(".")[1] in {ROOM_OF.get(each, each) for each in folders}


IMPORTS = sorted({(path, name) for path in TESTS.rglob("*.py") for name in imported(path)})


def test_no_module_imports_a_test_module() -> None:
    found = [each for each in IMPORTS if each[1].startswith("tests.") and ".test_" in each[1]]
    assert found == []


def test_no_test_enters_a_private_module_of_another_room() -> None:
    """A harness module in the folder of the other room does, and gives others what they need."""
    found = [each for each in IMPORTS if "." in each[1] and is_private(each[1])]
    assert len(found) > 100
    assert [each for each in found if not is_own(*each)] == []
