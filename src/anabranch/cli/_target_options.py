"""The parameters that name a TARGET, its tools and their arguments; a shell completes them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch.cli._completers import python_files, tool_arguments, tool_names

Completed: TypeAlias = Annotated[str, Parameter(completer=python_files)]
"""A TARGET, whose help text depends on what the command does with it."""
Target: TypeAlias = Annotated[
    Completed,
    Parameter(
        help="A Python file, a module, module:attribute, a server's URL, or command:… to start one."
    ),
]
SourceTarget: TypeAlias = Annotated[
    Completed, Parameter(help="A Python file, a module, or module:attribute.")
]
ToolName: TypeAlias = Annotated[
    str | None, Parameter(help="The tool's name; all tools by default.", completer=tool_names)
]
Arguments: TypeAlias = Annotated[
    str,
    Parameter(
        name="name=value",
        help="Arguments: text for a parameter that takes text, JSON for any other.",
        completer=tool_arguments,
    ),
]
