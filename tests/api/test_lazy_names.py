"""The package loads each public name at its first use."""

import subprocess
import sys

import pytest

import anabranch


def test_the_names_that_are_not_loaded_yet_are_listed_too() -> None:
    assert set(anabranch.__all__) <= set(dir(anabranch))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'anabranch' has no attribute 'missing'"):
        getattr(anabranch, "missing")  # noqa: B009 - the type checkers know better than to allow it


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("first", ["anabranch.tool", "anabranch.rounds", "anabranch.mcp"])
def test_tool_is_the_decorator_even_where_its_module_was_imported_first(first: str) -> None:
    program = f"import {first}; from anabranch import tool; assert tool.__name__ == 'tool', tool"
    subprocess.run([sys.executable, "-c", program], check=True)
