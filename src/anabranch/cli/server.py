"""One server out of whatever the targets offer.

Owns how tools and servers that were found become the one server that runs. How they were found is
``targets.py``'s business, how it runs ``serve.py``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer

from anabranch.cli.errors import UsageError
from anabranch.cli.targets import Found
from anabranch.mcp import create_server, install
from anabranch.sampling import Sampler

__all__ = ["assemble", "tool_names"]


def assemble(found: Found, *, keys: Sequence[str], sampler: Sampler | None) -> MCPServer[Any]:
    """Return a server with everything in it: the first that was found, or a new one.

    A server's own tools are served as they are. A tool that a server has already is not added
    again; the tools of further servers are added to the first.

    Raises:
        UsageError: two different things have the same name.
    """
    try:
        if not found.servers:
            return create_server("anabranch", found.tools, keys=keys, sampler=sampler)
        server, *others = found.servers
        _merge(server, others)
        there = set(tool_names(server))
        install(server, *(t for t in found.tools if t.name not in there), sampler=sampler)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    return server


def tool_names(server: MCPServer[Any]) -> list[str]:
    """Return the names of all tools of a server that does not run yet."""
    return [tool.name for tool in anyio.run(server.list_tools)]


def _merge(server: MCPServer[Any], others: Sequence[MCPServer[Any]]) -> None:
    for other in others:
        # The SDK tells of a registered tool's function nowhere else.
        for tool in other._tool_manager.list_tools():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            if tool.name in tool_names(server):
                raise ValueError(
                    f"Two servers have a tool named {tool.name}; serve them one by one,"
                    " as TARGET:attribute"
                )
            server.add_tool(
                tool.fn,
                name=tool.name,
                title=tool.title,
                description=tool.description,
                annotations=tool.annotations,
                icons=tool.icons,
                meta=tool.meta,
                structured_output=tool.output_schema is not None,
            )
