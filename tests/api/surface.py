"""The public surface of anabranch, read from its source: modules, names, signatures, meanings.

``make api`` (``python -m tests.api.surface``) writes ``docs/api.md``, which lists every public name with
its meaning. A change of the public surface therefore changes that page.

This module reads the source and does not import it. Defaults and annotations stay as the author wrote
them, under every version of Python and with any extras.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "api.md"


@dataclass(frozen=True)
class Entry:
    """One name of a module's ``__all__``, or one member of a public class or exported module.

    Attributes:
        module: the public module that exports the name.
        name: the name in that module; a member is named ``Class.member``.
        target: the object that the name stands for.
    """

    module: str
    name: str
    target: griffe.Object

    @property
    def meaning(self) -> str:
        """Return the first paragraph of the docstring on one line; empty without a docstring."""
        text = self.target.docstring.value if self.target.docstring is not None else ""
        return " ".join(text.strip().partition("\n\n")[0].split())

    @property
    def is_member(self) -> bool:
        """Return whether the entry belongs to a class or an exported module."""
        return "." in self.name


@cache
def _package() -> griffe.Object:
    loader = griffe.GriffeLoader(search_paths=[str(ROOT / "src")])
    package = loader.load("anabranch")
    loader.resolve_aliases(implicit=True, external=False)
    assert isinstance(package, griffe.Object)
    return package


def public_modules() -> list[griffe.Module]:
    """Return the modules without an underscore in their path, by name."""
    return sorted(_modules(_package()), key=lambda module: module.path)


def _modules(module: griffe.Object) -> Iterator[griffe.Module]:
    assert isinstance(module, griffe.Module)
    yield module
    for name, inner in module.modules.items():
        if not name.startswith("_") and not inner.is_alias:
            yield from _modules(inner)


def entries() -> list[Entry]:
    """Return all public entries in the order of their modules; members follow their class or
    module.
    """
    return [entry for module in public_modules() for entry in _entries(module, module.path)]


def _entries(module: griffe.Module, path: str, prefix: str = "") -> Iterator[Entry]:
    for name in sorted(map(str, module.exports or ())):
        target = _exported(module, name)
        yield Entry(path, prefix + name, target)
        if isinstance(target, griffe.Module):
            yield from _entries(target, path, f"{prefix}{name}.")
        elif isinstance(target, griffe.Class):
            for member in _members(target):
                yield Entry(path, f"{prefix}{name}.{member.name}", member)


def _exported(module: griffe.Module, name: str) -> griffe.Object:
    """Return the object that an importer gets: an imported name hides a module of the same name."""
    source = module.imports.get(name)
    found = _package().modules_collection[source] if source else module.members[name]
    return _target(found)


def _target(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


PROTOCOLS = frozenset({
    "__aenter__", "__aexit__", "__aiter__", "__anext__", "__call__", "__enter__", "__exit__",
})  # fmt: skip
"""Methods without a name of their own that a user of a class relies on."""


OF_THE_LIBRARY = "Only the library calls its methods, except ``close``."
"""Says in a class's docstring that users pass its objects on."""


def _members(cls: griffe.Class) -> Iterator[griffe.Object]:
    """Yield the public members of a class: the class's own, and those of its private bases."""
    is_passed_on = cls.docstring is not None and OF_THE_LIBRARY in cls.docstring.value
    found: dict[str, griffe.Object] = {}
    for owner in (*reversed(cls.mro()), cls):
        if owner is cls or any(part.startswith("_") for part in owner.path.split(".")):
            found |= {name: _target(member) for name, member in owner.members.items()}
    for name in sorted(found):
        if name == "close" if is_passed_on else not name.startswith("_") or name in PROTOCOLS:
            yield found[name]


# -- signatures --------------------------------------------------------------------------------


def signatures(entry: Entry) -> Iterator[str]:
    """Yield the signatures of an entry: one, or one for each overload."""
    path, target = f"{entry.module}.{entry.name}", entry.target
    home = _homes()[target.path]
    if home != path:
        if not entry.is_member:
            yield f"{path} = {home}"
    elif isinstance(target, griffe.Function):
        kinds = sorted(target.labels & {"async", "classmethod", "staticmethod"})
        for function in target.overloads or [target]:
            yield " ".join([_signature(function, path), *kinds])
    elif isinstance(target, griffe.Class):
        yield f"{path} (class{''.join(f' {base}' for base in target.bases)})"
        constructor = target.members.get("__init__")
        if isinstance(constructor, griffe.Function) and not _is_made_by_the_library(target):
            yield _signature(constructor, path)
    elif isinstance(target, griffe.Attribute):
        yield " ".join(f"{path}{_annotation(target)}".split())
    else:
        yield f"{path} (module)"


def _signature(function: griffe.Function, path: str) -> str:
    shown = " ".join(function.signature(name=path).split()).replace("(self, ", "(")
    return shown.replace("(self)", "()").replace(") -> None", ")")


def _annotation(attribute: griffe.Attribute) -> str:
    """Return the annotation of an attribute; with its value, unless a constructor computes it."""
    typed = f": {attribute.annotation}" if attribute.annotation is not None else ""
    fixed = attribute.labels & {"class-attribute", "module-attribute"}
    return typed + (f" = {attribute.value}" if fixed and attribute.value is not None else "")


def _is_made_by_the_library(cls: griffe.Class) -> bool:
    return cls.docstring is not None and "Made by the library" in cls.docstring.value


@cache
def _homes() -> dict[str, str]:
    """Return the public path of each target: the path in the module that defines the target, if
    public.

    Otherwise the path in the public module closest to the definition, or the first path of all.
    """
    homes: dict[str, str] = {}
    for entry in entries():
        known, path = homes.get(entry.target.path), f"{entry.module}.{entry.name}"
        if known is None or _closeness(entry) > _closeness_of(known, entry.target.path):
            homes[entry.target.path] = path
    return homes


def _closeness(entry: Entry) -> int:
    return _closeness_of(f"{entry.module}.{entry.name}", entry.target.path)


def _closeness_of(path: str, definition: str) -> int:
    pairs = zip(path.split("."), definition.split("."), strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), len(path.split(".")))


# -- the page ----------------------------------------------------------------------------------

HEADING = """# API reference

Every public name and what it is, module by module. What is not here, and every module with an
underscore in its path, may change in any release. Signatures are in the source, and in
`help()`; this page is made of the docstrings by `make api`.
"""


def page() -> str:
    """Return the reference page: a table for each module."""
    parts = [HEADING]
    for module in public_modules():
        parts += [f"## `{module.path}`\n", f"{_cell(Entry(module.path, '', module).meaning)}\n"]
        lines = [f"| `{each.name}` | {_cell(each.meaning)} |\n" for each in rows(module)]
        if lines:
            parts.append("".join(["| name | meaning |\n|---|---|\n", *lines]))
    return "\n".join(parts)


def rows(module: griffe.Module) -> Iterator[Entry]:
    """Yield a module's names; the members of a class follow only in the class's home module."""
    for entry in _entries(module, module.path):
        home = _homes()[entry.target.path]
        if not entry.is_member or (entry.meaning and home == f"{entry.module}.{entry.name}"):
            yield entry


def _cell(text: str) -> str:
    """Return reStructuredText as Markdown, on one line of a table."""
    return markdown(text).replace("|", "\\|")


def markdown(text: str) -> str:
    """Return reStructuredText as Markdown, for the markup that this project's docstrings use."""
    text = re.sub(r":\w+:`~?([^`<]*?)(?:\s*<[^>]*>)?`", r"`\1`", text)
    return re.sub(r"``(.+?)``", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
