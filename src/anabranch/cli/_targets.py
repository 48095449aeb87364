"""TARGETs: a Python file, a module, ``module:attribute``, or the URL of a running server.

The chat also takes ``command:uvx some-server``. A target offers the tools, plugins and servers at
module level. Loading a target runs its code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar, cast

from typing_extensions import TypeIs

from anabranch._terminal import UsageError
from anabranch.cli._output import prints_on_stderr
from anabranch.errors import author_line
from anabranch.tool import HandoffTool, Tool

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp.server.mcpserver import MCPServer

    from anabranch.chat import Plugin
    from anabranch.cli._options import ReachOptions
    from anabranch.mcp import Connectable

    AnyServer: TypeAlias = MCPServer[Any] | FastMCP[Any]

T = TypeVar("T")


@dataclass(slots=True)
class Found:
    """The tools (with those of plugins), plugins and servers of targets, each object once."""

    tools: list[Tool[Any]] = field(default_factory=list[Tool[Any]])
    servers: list[MCPServer[Any]] = field(default_factory=list["MCPServer[Any]"])
    fastmcp: list[FastMCP[Any]] = field(default_factory=list["FastMCP[Any]"])
    plugins: list[Plugin[Any]] = field(default_factory=list["Plugin[Any]"])
    version: str = ""

    @property
    def connectable(self) -> list[Connectable]:
        # The SDK's server inside FastMCP: FastMCP's own client is another.
        below = (each._mcp_server for each in self.fastmcp)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return [*self.servers, *below]

    def add(self, *values: object) -> bool:
        added = [self._add(value) for value in values]
        return any(added)

    def _add(self, value: object) -> bool:
        if _is_plugin(value):
            _add_once(self.plugins, value)
            return self._add(value.mcp)
        if isinstance(value, Tool):
            # pyright does not know the element type; mypy takes it for Any.
            _add_once(self.tools, cast("Tool[Any]", value))  # type: ignore[redundant-cast]
        elif _is_mcp_server(value):
            _add_once(self.servers, value)
        elif is_fastmcp(value):
            _add_once(self.fastmcp, value)
        else:
            return False
        return True


def _is_mcp_server(value: object) -> TypeIs[MCPServer[Any]]:
    """Whether ``value`` is a server of the SDK, which only a target's own import loads."""
    module = sys.modules.get("mcp.server.mcpserver")
    return module is not None and isinstance(value, module.MCPServer)


def is_fastmcp(value: object) -> TypeIs[FastMCP[Any]]:
    module = sys.modules.get("fastmcp")
    return module is not None and isinstance(value, module.FastMCP)


def _is_plugin(value: object) -> TypeGuard[Plugin[Any]]:
    module = sys.modules.get("anabranch.chat._plugins.plugin")
    return module is not None and isinstance(value, module.Plugin)


def _add_once(known: list[T], value: T) -> None:
    # By identity: an object may have two names in a module, and be imported by another.
    if not any(value is other for other in known):
        known.append(value)


def is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def is_server(target: str) -> bool:
    return is_url(target) or target.startswith("command:")


def check_reach(target: str, reach: ReachOptions) -> None:
    headers, variables = reach.headers, reach.variables
    if variables and not target.startswith("command:"):
        raise UsageError("--env is for a server that a command starts: command:….")
    if headers and not is_url(target):
        raise UsageError("--token and --header are for a server at a URL.")


def no_such_tool(target: str, name: str | None, offered: Iterable[str]) -> UsageError:
    names = ", ".join(offered) or "nothing"
    return UsageError(f"{target} has no tool {name!r}. It offers: {names}.")


def split_target(target: str) -> tuple[str, str | None]:
    place, colon, attribute = target.rpartition(":")
    if not colon or attribute.startswith(("/", "\\")):  # a drive's colon names no attribute
        place, attribute = target, ""
    if _is_file(place):
        if not Path(place).is_file():
            raise UsageError(f"There is no file {place}. Check the path.")
    elif not _module_exists(place):
        raise UsageError(
            f"There is no module {place!r}. A TARGET is a Python file, a module,"
            " module:attribute, or a URL."
        )
    return place, attribute or None


def name_of(targets: Iterable[str]) -> str:
    places = [split_target(target)[0] for target in targets if not is_server(target)]
    return "+".join(Path(each).stem if _is_file(each) else each for each in places)


def identity_of(targets: Iterable[str]) -> str:
    places = [split_target(target)[0] for target in targets if not is_server(target)]
    return "\n".join(str(Path(each).resolve()) if _is_file(each) else each for each in places)


def load(targets: Iterable[str]) -> Found:
    """Load the targets; prints of their code go to stderr, as stdout may carry the protocol."""
    found = Found()
    for target in targets:
        if is_server(target):
            raise UsageError(f"{target} is already a server. Call it: anabranch call.")
        place, attribute = split_target(target)
        with prints_on_stderr():
            module = _import(place)
        found.version = found.version or str(vars(module).get("__version__", ""))
        if attribute is not None:
            _take_attribute(found, module, attribute, target)
        elif not found.add(*vars(module).values()):
            raise UsageError(_nothing(target, module))
    return found


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


def _module_exists(name: str) -> bool:
    """Return whether the outermost package exists; a search inside would run its code."""
    _look_in(Path.cwd())
    package = name.partition(".")[0]
    return package.isidentifier() and importlib.util.find_spec(package) is not None


def _look_in(folder: Path) -> None:
    """Let a target import the modules in ``folder``; installed packages take precedence."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import(place: str) -> ModuleType:
    try:
        if not _is_file(place):
            return importlib.import_module(place)
        path = Path(place).resolve()
        _look_in(path.parent)
        return _import_file(path)
    except SystemExit as error:
        raise UsageError(f"{place} ends the process when it is loaded ({error}).") from error
    except Exception as error:
        where = "" if isinstance(error, SyntaxError) else author_line(error)
        problem = f"{place} cannot be loaded: {type(error).__name__}: {error}"
        raise UsageError(f"{problem} ({where})." if where else f"{problem}.") from error


def _import_file(path: Path) -> ModuleType:
    if (in_package := _name_in_package(path)) is not None:
        return importlib.import_module(in_package)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known  # another target has imported the file
    # A file may have the name of a module in use, say json.py, and must not replace it.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} of {path.parent}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("it is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Annotations are resolved, and values unpickled, through this table.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _name_in_package(path: Path) -> str | None:
    """Return the name of ``path`` in its package, where it imports neighbours by dots."""
    folder, name = path.parent, path.stem
    while (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    if "." not in name or not all(part.isidentifier() for part in name.split(".")):
        return None
    _look_in(folder)
    package = importlib.util.find_spec(name.partition(".")[0])
    if package is None or package.origin != str(folder / name.partition(".")[0] / "__init__.py"):
        return None  # an installed package has the same name
    return name


def _take_attribute(found: Found, module: ModuleType, attribute: str, target: str) -> None:
    value: Any = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise UsageError(
                f"Cannot find {target}: there is no attribute {name!r}. Check the name."
            )
        value = getattr(value, name)
    if not found.add(value):
        raise UsageError(
            f"{target} is {value!r}, which is neither a tool, a plugin nor an MCPServer."
        )


def _nothing(target: str, module: ModuleType) -> str:
    classes = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, HandoffTool) and value is not HandoffTool
    ]
    hint = f" Make an instance of {classes[0]} at module level." if classes else ""
    return f"{target} offers nothing: no tool, no plugin and no server at module level.{hint}"
