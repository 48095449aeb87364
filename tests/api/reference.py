"""The API reference of the documentation site: one page for each public module.

``docs/api.md`` has one line for each name. These pages have its signature and its whole docstring.
Both are made from the same entries. ``make docs`` writes these pages; the repository does not store them.
"""

import re
from collections.abc import Iterator

import griffe

from tests.api.surface import markdown, public_modules, rows, signatures

SECTIONS = {
    griffe.DocstringSectionKind.parameters: "Parameters",
    griffe.DocstringSectionKind.attributes: "Attributes",
    griffe.DocstringSectionKind.raises: "Raises",
    griffe.DocstringSectionKind.returns: "Returns",
    griffe.DocstringSectionKind.yields: "Yields",
}


def reference_pages() -> dict[str, str]:
    """Return the page of each public module, by the module's path."""
    return {module.path: "\n".join(_page(module)) for module in public_modules()}


def _page(module: griffe.Module) -> Iterator[str]:
    yield f"# {module.path}\n"
    yield from _docstring(module)
    for entry in rows(module):
        yield f"{'###' if entry.is_member else '##'} {entry.name}\n"
        if shown := [line.removeprefix(f"{module.path}.") for line in signatures(entry)]:
            yield "\n".join(["```python", *shown, "```\n"])
        yield from _docstring(entry.target)


def _docstring(target: griffe.Object) -> Iterator[str]:
    if target.docstring is None:
        return
    for section in target.docstring.parse("google"):
        if section.kind in SECTIONS:
            yield f"**{SECTIONS[section.kind]}**\n"
            yield "".join(f"- {_item(each)}\n" for each in section.value)
        else:
            yield f"{_text(str(section.value))}\n"


def _item(described: griffe.DocstringElement) -> str:
    name = getattr(described, "name", "") or str(described.annotation or "")
    text = " ".join(described.description.split())
    return f"`{name}`: {markdown(text)}" if name else markdown(text)


def _text(text: str) -> str:
    """Return a docstring's text as Markdown; an indented paragraph becomes a block of code."""
    paragraphs = re.sub(r"::$", ":", text, flags=re.MULTILINE).split("\n\n")
    return "\n\n".join(each if each.startswith(" " * 4) else markdown(each) for each in paragraphs)
