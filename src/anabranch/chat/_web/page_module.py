"""The modules of the page as one: a browser makes one request for them, and not two dozen.

Each becomes a function that runs once, after those that it imports, and returns what it exports.
This reads JavaScript no further than the page needs: imports are at the beginnings of lines, and end
with ``;``; a list of exports is at the end; a module exports nothing that it assigns again later;
none awaits at its top level, and none imports itself by way of others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

IMPORT = re.compile(r'^import\s*([^;"]+?)\s*from\s*"(\.[^"]+)";', re.MULTILINE)
DECLARED = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
DEFAULT = re.compile(r"(?:^|(?<=;))export default\b", re.MULTILINE)
LISTED = re.compile(r"\bexport\s*\{([^}]*)\};?\s*\Z")


def assembled(sources: Mapping[str, str], entry: str) -> str:
    """Return the module ``entry`` with all that it imports; ``sources`` has their texts by path.

    Raises:
        KeyError: a module is imported that is not there.
        ValueError: a module imports itself by way of others.
    """
    functions: dict[str, str] = {}

    def add(path: str, importers: tuple[str, ...]) -> None:
        if path in importers:
            raise ValueError(f"{path} imports itself by way of {importers[-1]}.")
        if path not in functions:
            for _, relative in IMPORT.findall(sources[path]):
                add(_resolved(path, relative), (*importers, path))
            functions[path] = _as_function(path, sources[path])

    add(entry, ())
    return "\n".join(functions.values())


def _as_function(path: str, source: str) -> str:
    """Return a statement that runs the module, and has what it exports in a variable of its own."""
    exports = {name: name for name in DECLARED.findall(source)}
    if DEFAULT.search(source):
        exports["default"] = "exported"
    if listed := LISTED.search(source):
        exports |= {name: local for local, name in map(_renamed, listed[1].split(","))}
    body = DECLARED.sub("", LISTED.sub("", DEFAULT.sub("const exported =", source)))
    body = IMPORT.sub(lambda match: _bound(match[1], _resolved(path, match[2])), body)
    returned = ", ".join(f"{name}: {local}" for name, local in exports.items())
    return (
        f"// {path}\nconst {_variable(path)} = (() => {{\n{body}\nreturn {{ {returned} }};\n}})();"
    )


def _bound(clause: str, path: str) -> str:
    """Return a statement that does what an import of ``clause`` from ``path`` does."""
    if clause.startswith("{"):
        names = map(_renamed, clause.strip("{}").split(","))
        bound = f"{{ {', '.join(f'{name}: {local}' for name, local in names)} }}"
    elif clause.startswith("* as "):
        bound = clause.removeprefix("* as ")
    else:
        bound = f"{{ default: {clause} }}"
    return f"const {bound} = {_variable(path)};"


def _renamed(each: str) -> tuple[str, str]:
    """Return the two names of ``one as other``; a name alone is both."""
    one, _, other = each.strip().partition(" as ")
    return one, other or one


def _resolved(path: str, relative: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), relative))


def _variable(path: str) -> str:
    return "module_" + re.sub(r"\W", "_", path)
