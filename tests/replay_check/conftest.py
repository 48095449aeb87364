"""Write tools to a file, import them, and remove the module afterwards."""

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from anabranch.testing import Finding, check_tool

HEAD = """
from pydantic import BaseModel
from anabranch import BranchContext, HandoffTool, tool

class Name(BaseModel):
    name: str

"""

Load = Callable[[str], ModuleType]
Check = Callable[[str], list[Finding]]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import a source from the test's folder, under a unique name."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    numbers = itertools.count()

    def load(source: str) -> ModuleType:
        path = tmp_path / f"target_{next(numbers)}.py"
        path.write_text(source, "utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def check(load: Load) -> Check:
    """Check the tool named ``t`` of a source that begins with ``HEAD``."""
    return lambda source: check_tool(load(HEAD + source).t)
