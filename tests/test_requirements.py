"""The manifest and the tests agree, both ways."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent


@cache
def marked() -> dict[str, list[str]]:
    """Return the tests that name each id, read from their source."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in ids(node):
                    found.setdefault(name, []).append(f"{path.name}::{node.name}")
    return found


def ids(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return what the function's ``@pytest.mark.requirement(…)`` say."""
    return [
        str(decorator.args[0].value)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and ast.unparse(decorator.func) == "pytest.mark.requirement"
        and isinstance(decorator.args[0], ast.Constant)
    ]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_each_requirement_has_a_test(name: str) -> None:
    """Chosen: a requirement without a test is a wish."""
    assert name in marked()


def test_no_test_names_an_unknown_requirement() -> None:
    """Chosen: a mistyped id proves nothing."""
    assert marked().keys() <= REQUIREMENTS.keys()


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_each_requirement_says_where_it_comes_from_in_one_sentence(name: str) -> None:
    """Chosen: the manifest is for reading."""
    source, behaviour = REQUIREMENTS[name]
    assert source
    assert behaviour.endswith(".")
