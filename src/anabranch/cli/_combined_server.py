"""Combines all tools and servers of the targets into one MCP server, for ``anabranch serve``.

A server keeps the options that its own code sets, and the command reports them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from mcp.server.mcpserver import InvalidRequestState, MCPServer, RequestStateCodec
from mcp.server.request_state import AESGCMRequestStateCodec, RequestStateBoundary

from anabranch._asking import Sampler
from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal import UsageError, failing_as
from anabranch.cli._answering import open_sampler
from anabranch.cli._option_groups import AgentTools, Asking, Persistence
from anabranch.cli._options import store_url
from anabranch.cli._targets import Found, is_fastmcp, load, name_of
from anabranch.errors import StoreError
from anabranch.mcp import (
    ANSWER_QUESTIONS,
    CONTINUE_CALL,
    ServerOptions,
    completed_by,
    create_server,
    install,
    install_fastmcp,
)
from anabranch.stores import open_stores
from anabranch.tool import Tool

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from anabranch.cli._targets import AnyServer
    from anabranch.tree import TreeStore

ITS_OWN = (
    "FastMCP runs the tools of a FastMCP server: --store, --model and limits have no effect on"
    " them, and their questions fail over MCP 2026-07-28."
)


class MadeServer(NamedTuple):
    """A server; its own code has set the options ``unused``, and it runs in ``around``."""

    server: AnyServer
    unused: set[str]
    around: AbstractAsyncContextManager[None]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ServerRecipe:
    """The settings of a server, from which each worker process can make the same server."""

    targets: tuple[str, ...]
    model: str | None
    keys: tuple[str, ...] = field(repr=False)
    persistence: Persistence
    name: str | None = None
    asking: Asking = Asking()
    limits: Limits = UNLIMITED
    agent_tools: AgentTools = AgentTools()

    def make_server(self) -> MadeServer:
        sampler = open_sampler(self.model)
        with failing_as(UsageError, ValueError):
            options = server_options(self.keys, sampler, self.persistence, self.asking, self.limits)
        url = self.persistence.store
        store: str | TreeStore | None = url
        if url and (self.agent_tools.memory or self.agent_tools.folding):
            with failing_as(UsageError, StoreError):
                calls, store = open_stores(url)  # the branches share the connections of the calls
            options = replace(options, store=calls)
        with completed_by(options) as unused:
            found = load(self.targets)
        around = self._add_agent_tools(found, store, sampler)
        if (found.servers or found.fastmcp) and self.name is not None:
            unused.add("name")
        server: AnyServer = (
            assemble_fastmcp(found, options)
            if found.fastmcp
            else assemble(found, options, self.name or name_of(self.targets) or "anabranch")
        )
        given = sampler or store or self.limits != UNLIMITED
        note = ITS_OWN if given and found.fastmcp and not found.tools else ""
        return MadeServer(server, unused, around, note)

    def _add_agent_tools(
        self, found: Found, store: str | TreeStore | None, sampler: Sampler | None
    ) -> AbstractAsyncContextManager[None]:
        wanted = self.agent_tools
        if not (wanted.folding or wanted.memory):
            return nullcontext()
        from anabranch.cli._memory import expiring, learning, open_bank, open_branches
        from anabranch.folding import folding_tools
        from anabranch.memory import memory_tools

        bank, branches, learner = None, None, sampler if wanted.memory else None
        if wanted.memory or store:
            bank = open_bank(store or store_url(None), wanted.shared_memory)
        if wanted.folding:
            branches = open_branches(store, bank, learns=learner is not None)
            found.add(*folding_tools(branches))
        if wanted.memory and bank is not None:
            found.add(*memory_tools(bank))

        @asynccontextmanager
        async def working() -> AsyncGenerator[None]:
            async with learning(bank, learner), expiring(branches):
                yield

        return working()


def server_options(
    keys: Sequence[str],
    sampler: Sampler | None = None,
    persistence: Persistence = Persistence(),
    asking: Asking = Asking(),
    limits: Limits = UNLIMITED,
) -> ServerOptions:
    return ServerOptions(
        keys=keys,
        ttl=persistence.ttl,
        store=persistence.store or None,
        sampler=sampler,
        sampler_mode=asking.sampler_mode,
        ask="fallback" if asking.ask_fallback else "client",
        ask_url=asking.ask_url,
        sagas=asking.sagas,
        heartbeat=asking.heartbeat or None,
        continue_calls=persistence.continue_calls,
        grace=persistence.grace,
        max_running=persistence.max_running,
        limits=None if limits == UNLIMITED else limits,
        code_version=persistence.version or None,
    )


def assemble_fastmcp(found: Found, options: ServerOptions) -> FastMCP[Any]:
    server, *others = found.fastmcp
    if others or found.servers:
        raise UsageError(
            "A FastMCP server cannot be merged with another server: serve them one by one, as"
            " TARGET:attribute."
        )
    there = tool_names(server)
    new = [tool for tool in found.tools if tool.name not in there]
    try:
        if new:
            install_fastmcp(server, *new, options=options)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except StoreError as error:
        raise UsageError(str(error)) from error
    return server


def assemble(found: Found, options: ServerOptions, name: str = "anabranch") -> MCPServer[Any]:
    """Return a server with all tools: the first found, or a new one called ``name``."""
    try:
        if not found.servers:
            return create_server(name, found.tools, version=found.version, options=options)
        server, *others = found.servers
        _merge(server, others)
        _add(server, found.tools, options)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    except StoreError as error:
        raise UsageError(str(error)) from error
    return server


def _add(server: MCPServer[Any], tools: Sequence[Tool[Any]], options: ServerOptions) -> None:
    there = set(tool_names(server))
    new = [tool for tool in tools if tool.name not in there]
    if not new:
        return
    # The server's author may have put tools into a store of their own.
    continues = options.continue_calls and CONTINUE_CALL not in there
    if ANSWER_QUESTIONS in there:
        options = replace(options, ask="client", ask_url=None)
    install(server, *new, options=options, continue_calls=continues)


def seal_probe(server: AnyServer) -> str:
    """Return a sealed text, which only a server with the same keys can open."""
    return _codec(server).seal(b"")


def opens(server: AnyServer, probe: str) -> bool:
    try:
        return _codec(server).unseal(probe) == b""
    except InvalidRequestState:
        return False


def seals_with(server: AnyServer, keys: Sequence[str]) -> bool:
    try:
        return AESGCMRequestStateCodec(keys).unseal(seal_probe(server)) == b""
    except InvalidRequestState:
        return False


def _codec(server: AnyServer) -> RequestStateCodec:
    # The SDK gives every server a sealer, without public access to it.
    if is_fastmcp(server):
        middleware = server._mcp_server.middleware  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    else:
        middleware = server._lowlevel_server.middleware  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    (boundary,) = [each for each in middleware if isinstance(each, RequestStateBoundary)]
    return boundary._security.codec  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def tool_names(server: AnyServer) -> list[str]:
    if is_fastmcp(server):
        return [tool.name for tool in anyio.run(server.list_tools)]
    return [tool.name for tool in anyio.run(server.list_tools)]


def _merge(server: MCPServer[Any], others: Sequence[MCPServer[Any]]) -> None:
    # The SDK has no public access to registered tools, and its add_tool takes functions alone.
    tools = server._tool_manager._tools  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for other in others:
        for tool in other._tool_manager.list_tools():  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            if tool.name in tools:
                raise ValueError(
                    f"Two servers have a tool named {tool.name}; serve them one by one,"
                    " as TARGET:attribute"
                )
            tools[tool.name] = tool
