"""The parameters that name a TARGET, its tools and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

if TYPE_CHECKING:
    TargetName: TypeAlias = str
    """A TARGET, whose help text depends on the command."""
else:
    TargetName = str | Path
    """A shell completes files for a parameter that may be a path. The first type is the one that arrives."""
Target: TypeAlias = Annotated[
    TargetName,
    Parameter(
        help="A Python file, a module, module:attribute, a server's URL, or command:… to start one."
    ),
]
SourceTarget: TypeAlias = Annotated[
    TargetName, Parameter(help="A Python file, a module, or module:attribute.")
]
ToolName: TypeAlias = Annotated[str | None, Parameter(help="Name of the tool. Default: all tools.")]
Arguments: TypeAlias = Annotated[
    str,
    Parameter(
        name="name=value",
        help="Arguments of the tool: text for a text parameter, JSON for any other.",
    ),
]
ChatTargets: TypeAlias = Annotated[
    TargetName,
    Parameter(
        help="Sources of tools: Python files, modules, module:attribute, URLs of MCP servers, or "
        "command:… to start one."
    ),
]
