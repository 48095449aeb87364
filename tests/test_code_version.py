"""The version of a tool's code: a digest of its definition, or a given name."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.mcp import ServerOptions, create_server
from anabranch.tool import Tool, code_version

SOURCE = """
from anabranch import BranchContext, HandoffTool, tool

@tool
async def one(ctx: BranchContext, n: int = 1) -> int:
    'One.'
    return n

class Base(HandoffTool):
    async def before(self) -> int:
        return 1
    async def client(self, hand: int, ctx: BranchContext) -> int:
        return hand
    async def after(self, hand: int, pick: int) -> int:
        return 0

class Two(Base):
    async def after(self, hand: int, pick: int) -> int:
        return pick

two = Two()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder for a test's modules, and unload the modules afterwards."""
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(path: Path, source: str) -> ModuleType:
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tools_in(module: ModuleType) -> list[Tool[Any]]:
    return [module.one, module.two]


def test_a_version_does_not_depend_on_the_place_or_order_of_files(home: Path) -> None:
    version = code_version(tools_in(loaded(home / "here_one.py", SOURCE)))
    elsewhere = tools_in(loaded(home / "elsewhere.py", SOURCE.replace("\n", "\r\n")))
    assert code_version(reversed(elsewhere)) == version
    assert len(version) == 12


@pytest.mark.parametrize(
    ("old", "new"),
    [("return n", "return n + 1"), ("n: int = 1", "n: int = 2"), ("return pick", "return 7")],
    ids=["body", "parameter", "class"],
)
def test_a_version_changes_with_the_code(home: Path, old: str, new: str) -> None:
    version = code_version(tools_in(loaded(home / "first.py", SOURCE)))
    changed = tools_in(loaded(home / "second.py", SOURCE.replace(old, new)))
    assert code_version(changed) != version


def test_a_version_uses_name_and_parameters_of_unreadable_code() -> None:
    made: dict[str, Any] = {}
    exec(SOURCE, made)  # noqa: S102 - as at a prompt
    other: dict[str, Any] = {}
    exec(SOURCE.replace("return n", "return -n"), other)  # noqa: S102
    assert code_version([made["one"]]) == code_version([other["one"]])
    assert code_version([made["one"]]) != code_version([])


@tool
async def told(ctx: BranchContext) -> str:
    return "said"


@pytest.mark.parametrize("version", ["", " ", "a b", "a/b", "~", ".1", "x" * 101, "1\n"])
def test_a_version_name_must_be_plain(version: str) -> None:
    with pytest.raises(ValueError, match="A version of the code is 1 to 100"):
        ServerOptions(code_version=version)
    with pytest.raises(ValueError, match="A version of the code is 1 to 100"):
        create_server("test", [told], code_version=version)


def test_a_given_version_is_used_unchanged() -> None:
    assert code_version([told], "2026-11-22+rc.1") == "2026-11-22+rc.1"
