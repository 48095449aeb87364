"""Every public name is listed, described and typed."""

import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeGuard

import mcp
import pytest

import anabranch
from anabranch import errors
from anabranch.errors import AnabranchError
from tests.api import surface

MODULES = [
    "anabranch",
    "anabranch.adapters",
    "anabranch.adapters.agent_framework",
    "anabranch.adapters.google_adk",
    "anabranch.adapters.langchain",
    "anabranch.adapters.openai_agents",
    "anabranch.adapters.pydantic_ai",
    "anabranch.agents",
    "anabranch.chat",
    "anabranch.cli",
    "anabranch.engines",
    "anabranch.errors",
    "anabranch.folding",
    "anabranch.mcp",
    "anabranch.memory",
    "anabranch.messages",
    "anabranch.models",
    "anabranch.replay_check",
    "anabranch.rounds",
    "anabranch.stores",
    "anabranch.testing",
    "anabranch.tool",
    "anabranch.tree",
]
"""What may be imported from outside. Everything else has an underscore in its path."""

# Known gaps: each name with the module that has to export or change it. A test fails for a name
# that is no longer missing, so the lists can only become shorter.
WITHOUT_ALL: set[str] = set()
PRIVATE_TYPES: set[str] = set()
FOREIGN_ERRORS: set[str] = set()
CLASHES: set[tuple[str, str]] = set()

MOST_MODULES = 28
ENTRIES = surface.entries()
HOW = "the public surface has changed; if that is meant, run `make api` and commit what it writes"


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def offered(name: str) -> list[str]:
    return list(getattr(load(name), "__all__", ()))


def importable() -> set[str]:
    found = {"anabranch"}
    for module in pkgutil.walk_packages(anabranch.__path__, "anabranch."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            found.add(module.name)
    return found


def test_the_public_modules_are_those_that_are_listed() -> None:
    """A module becomes public only if somebody adds it to this list."""
    assert sorted(importable()) == MODULES
    assert len(MODULES) <= MOST_MODULES


def test_the_root_module_names_every_public_module() -> None:
    """A newcomer reads help(anabranch) first."""
    listed = re.findall(r"^ {4}(anabranch[\w.]*)  ", anabranch.__doc__ or "", re.MULTILINE)
    assert listed == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_describes_itself_and_its_names(name: str) -> None:
    """``__all__`` lists the names that a module promises."""
    module = load(name)
    assert inspect.getdoc(module)
    assert hasattr(module, "__all__") is (name not in WITHOUT_ALL)
    names = offered(name)
    assert names == sorted(set(names), key=as_ruff_sorts)
    assert [each for each in names if not hasattr(module, each)] == []


def as_ruff_sorts(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_every_public_name_is_described() -> None:
    """A name without a description is not ready for users."""
    assert [f"{each.module}.{each.name}" for each in described() if not each.meaning] == []


def described() -> Iterator[surface.Entry]:
    """Yield the public names, with the methods and properties of classes."""
    for entry in ENTRIES:
        if not entry.is_member or entry.target.is_function or "property" in entry.target.labels:
            yield entry


def test_the_reference_page_is_made_of_the_docstrings() -> None:
    """``docs/api.md`` must match the docstrings."""
    assert surface.PAGE.read_text(encoding="utf-8") == surface.page(), HOW


def test_the_source_and_the_imported_package_agree_on_public_names() -> None:
    """The page is read from the source, but users import the package."""
    read = {name: set[str]() for name in MODULES}
    for entry in ENTRIES:
        if not entry.is_member:
            read[entry.module].add(entry.name)
    assert read == {name: set(offered(name)) for name in MODULES}


# -- names of other packages ---------------------------------------------------------------------

SHARED_WITH_MCP = {("anabranch.tool", "Tool")}
"""The class that tools are instances of is a tool in both packages; the root leaves it out."""


def test_a_star_import_replaces_no_name_of_mcp() -> None:
    """Most programs import names of both packages."""
    clashes = {(name, each) for name in MODULES for each in offered(name)} & {
        (name, each) for name in MODULES for each in mcp.__all__
    }
    assert clashes == SHARED_WITH_MCP | CLASHES


# -- errors --------------------------------------------------------------------------------------


def exported_errors() -> set[type[BaseException]]:
    values = [getattr(load(name), each) for name in MODULES for each in offered(name)]
    return {each for each in values if isinstance(each, type) and issubclass(each, BaseException)}


def test_every_public_error_is_an_anabranch_error() -> None:
    outside = {cls.__name__ for cls in exported_errors() if not issubclass(cls, AnabranchError)}
    assert outside == FOREIGN_ERRORS


def test_every_anabranch_error_is_public() -> None:
    """A caller must be able to name every error that the library raises."""
    for name in MODULES:
        load(name)
    hidden = {
        cls.__qualname__
        for cls in subclasses(AnabranchError)
        if cls.__module__.startswith("anabranch.") and cls not in exported_errors()
    }
    assert hidden == set()


def subclasses(cls: type[AnabranchError]) -> Iterator[type[AnabranchError]]:
    for direct in cls.__subclasses__():
        yield direct
        yield from subclasses(direct)


def test_the_tree_in_the_errors_module_is_complete() -> None:
    """Users look up the error hierarchy in the module's docstring."""
    drawn: dict[str, str] = {}
    above: list[str] = ["AnabranchError"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r" {4}([│ ]*)[├└]── (?:[a-z_]+\.)*(\w+)", line):
            depth = len(found[1]) // 4
            drawn[found[2]] = above[depth]
            above[depth + 1 :] = [found[2]]
    real = {cls.__name__: bases_of(cls) for cls in exported_errors() - {AnabranchError}}
    assert drawn.keys() == real.keys()
    misplaced = {name for name, parent in drawn.items() if parent not in real[name]}
    assert misplaced == FOREIGN_ERRORS


def bases_of(cls: type[BaseException]) -> set[str]:
    return {base.__name__ for base in cls.__bases__}


# -- types ---------------------------------------------------------------------------------------

OF_EXTRAS = dict.fromkeys(["FastMCP", "FastMCPTool", "ServerExtension"], list)
"""Classes of optional packages, which annotations name and modules do not import at run time."""
MADE_BY_THE_LIBRARY = "Made by the library"
"""Says in a class's docstring that its constructor is no part of the surface."""


class NamesOf(dict[str, object]):
    """The names in a module, including names that the module loads at their first use."""

    def __init__(self, module: str) -> None:
        super().__init__(OF_EXTRAS)
        self._module = load(module)

    def __missing__(self, name: str) -> object:
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise KeyError(name) from None


def public_objects() -> dict[int, str]:
    return {
        id(getattr(load(name), each)): f"{name}.{each}"
        for name in MODULES
        for each in offered(name)
    }


def test_every_type_that_a_public_signature_mentions_is_public() -> None:
    """An author of a wrapper must be able to annotate it."""
    known = public_objects()
    private: dict[str, str] = {}
    for name in MODULES:
        for each in offered(name):
            for where, cls in mentioned(getattr(load(name), each), f"{name}.{each}"):
                if id(cls) not in known:
                    private.setdefault(f"{cls.__module__}.{cls.__qualname__}", where)
    assert private.keys() == PRIVATE_TYPES, private


def mentioned(value: object, path: str) -> Iterator[tuple[str, type]]:
    """Yield the classes of this package that the annotations of a public name mention."""
    if inspect.ismodule(value):
        for name in value.__all__:
            yield from mentioned(getattr(value, name), f"{path}.{name}")
        return
    for where, hint in hints_of(value, path):
        yield from ((where, cls) for cls in classes_in(hint))


def hints_of(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the annotations of a function, class or alias, each with its place."""
    if inspect.isclass(value):
        yield from ((path, hint) for hint in class_hints(value))
        for name, member in vars(value).items():
            if is_promised(name, value):
                for function in functions_of(member):
                    yield from hints_of(function, f"{path}.{name}")
    elif inspect.isfunction(value):
        for function in typing.get_overloads(value) or [value]:
            yield from (
                (path, hint)
                for name, hint in typing.get_type_hints(
                    function, localns=NamesOf(function.__module__)
                ).items()
                if name != "self"  # methods of a context that are defined outside its class
            )
    else:
        yield path, value


def class_hints(cls: type) -> Iterator[object]:
    own = {name for name in vars(cls).get("__annotations__", {}) if not name.startswith("_")}
    hints = typing.get_type_hints(cls, localns=OF_EXTRAS)
    yield from (hints[name] for name in own)


def is_promised(name: str, cls: type) -> bool:
    if surface.OF_THE_LIBRARY in (cls.__doc__ or ""):
        return name == "close"
    if name == "__init__":
        return MADE_BY_THE_LIBRARY not in (cls.__doc__ or "")
    return not name.startswith("_") or name in surface.PROTOCOLS


def functions_of(member: object) -> Iterator[Callable[..., object]]:
    if isinstance(member, property) and member.fget is not None:
        yield member.fget
    elif inspect.isfunction(member) or isinstance(member, staticmethod | classmethod):
        yield inspect.unwrap(typing.cast("Callable[..., object]", member))


def classes_in(hint: object) -> Iterator[type]:
    """Yield the classes of this package in an annotation, at any depth."""
    origin = typing.get_origin(hint)
    if origin is not None:
        for part in (origin, *typing.get_args(hint)):
            yield from classes_in(part)
    elif isinstance(hint, list):  # the parameters of a Callable
        for part in typing.cast("list[object]", hint):
            yield from classes_in(part)
    elif isinstance(hint, typing.TypeVar) and hint.__bound__ is not None:
        yield from classes_in(hint.__bound__)
    elif is_ours(hint):
        yield hint


def is_ours(hint: object) -> TypeGuard[type[Any]]:
    return isinstance(hint, type) and hint.__module__.partition(".")[0] == "anabranch"
