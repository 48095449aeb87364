"""Tools into an ``MCPServer``: one function for the SDK, all ways of calling behind it.

Owns the registration of tools. It uses the SDK's public surface
alone (but for adding the saga methods to a server that exists, and for ``logs.py``), so that a tool
can be added to any server its user already has.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.exceptions import ToolError as McpToolError

from anabranch._asking.sampling import Sampler
from anabranch._engine.clock import Clock
from anabranch.limits import Limits
from anabranch.mcp._error_mapping import plain, told
from anabranch.mcp._installation import TTL, Installation, Keys, Store, named_once
from anabranch.mcp._log_level import offer_log_level
from anabranch.mcp._request import McpRequest
from anabranch.mcp._sagas import Sagas
from anabranch.mcp._sdk_parameters import MISSING, open_parameters, validate
from anabranch.mcp._serving import Service, serve
from anabranch.tool import Tool

__all__ = ["as_function", "create_server", "install"]

CONTEXT_PARAMETER = "anabranch_mcp_context"


def create_server(  # noqa: PLR0913 - all but two have a default
    name: str,
    tools: Iterable[Tool[Any]],
    *,
    keys: Keys | None = None,
    ttl: float = TTL,
    store: Store | None = None,
    sampler: Sampler | None = None,
    limits: Limits | None = None,
    continue_calls: bool = True,
    clock: Clock | None = None,
    instructions: str | None = None,
    version: str = "",
) -> MCPServer[Any]:
    """Return an ordinary ``MCPServer`` that offers ``tools`` in both eras, and as sagas.

    Args:
        name: the server's name; states are bound to it, so workers that share keys share it too.
        tools: what it offers.
        keys: secrets of at least 32 bytes that seal the state between rounds; the first seals,
            all open. Without keys one is made for this process, and open questions do not
            survive it.
        ttl: seconds that a person has for one round of questions.
        store: where calls are kept (a URL as of ``anabranch.stores.open_store``, a store, or a
            ``Durability``), so that effects happen once whatever clients repeat. While the server
            runs, calls that nobody continues are undone.
        sampler: a model of the server's own; without one, the client's is asked.
        limits: enclose every call, in addition to each tool's own.
        continue_calls: with a store, let a call that needs more rounds than clients allow be
            picked up again, by a tool ``continue_call``.
        clock: time for calls and their leases; the system's by default.
        instructions: told to clients about the server.
        version: told to clients.

    Raises:
        ValueError: a key is too short, or two tools have the same name.
        StoreError: the store's URL cannot be understood.
    """
    installation = Installation(
        name,
        keys=keys,
        ttl=ttl,
        store=store,
        sampler=sampler,
        limits=limits,
        clock=clock,
        continue_calls=continue_calls,
    )
    security = None if keys is None else RequestStateSecurity(keys=list(keys), ttl=ttl)
    server: MCPServer[Any] = MCPServer(
        name,
        instructions=instructions,
        version=version,
        request_state_security=security or RequestStateSecurity.ephemeral(ttl=ttl),
        extensions=[Sagas(installation.sagas)],
        lifespan=_lifespan(installation) if store is not None else None,
        log_level="WARNING",
    )
    _add(server, tools, installation)
    return server


def install(
    server: MCPServer[Any],
    *tools: Tool[Any],
    keys: Keys | None = None,
    ttl: float = TTL,
    store: Store | None = None,
    sampler: Sampler | None = None,
    limits: Limits | None = None,
    continue_calls: bool = True,
    clock: Clock | None = None,
) -> Installation:
    """Add ``tools`` to a server that you have, and the saga methods if it has none of ours.

    What seals the state of ``tools/call`` is the server's own; ``keys`` and ``ttl`` are for the
    tokens of sagas. With a store, enter ``installation.running()`` in your server's lifespan, so
    that calls which nobody continues are undone.

    Raises:
        ValueError: two of the tools have the same name, or the server has a tool of that name.
        StoreError: the store's URL cannot be understood.
    """
    installation = Installation(
        server.name,
        keys=keys,
        ttl=ttl,
        store=store,
        sampler=sampler,
        limits=limits,
        clock=clock,
        continue_calls=continue_calls,
    )
    _add(server, tools, installation)
    _offer_sagas(server, installation, tools)
    return installation


def _add(server: MCPServer[Any], tools: Iterable[Tool[Any]], installation: Installation) -> None:
    offered = named_once(installation.add(*tools))
    if taken := sorted(_names_on(server).intersection(tool.name for tool in offered)):
        # The SDK would keep the old one, with no more than a warning in its log.
        raise ValueError(f"{server.name!r} already has a tool named {', '.join(taken)}")
    for tool in offered:
        function = as_function(tool, installation.service)
        server.add_tool(function, name=tool.name, description=tool.description)
    offer_log_level(server)


def _offer_sagas(
    server: MCPServer[Any], installation: Installation, tools: Iterable[Tool[Any]]
) -> None:
    # The SDK takes extensions when a server is made, and from outside never again.
    known = server._extensions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for extension in known:
        if isinstance(extension, Sagas):
            for tool in tools:
                extension.saga_methods.offer(tool, installation.service)
            return
    server._apply_extension(Sagas(installation.sagas))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _lifespan(
    installation: Installation,
) -> Callable[[MCPServer[Any]], AbstractAsyncContextManager[dict[str, Any]]]:
    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
        async with installation.running():
            yield {}

    return lifespan


def _names_on(server: MCPServer[Any]) -> set[str]:
    """Return the names of the server's tools. ``list_tools`` is async, but has nothing to wait for."""
    listing = server.list_tools()
    try:
        listing.send(None)
    except StopIteration as listed:
        tools: list[types.Tool] = listed.value
        return {tool.name for tool in tools}
    listing.close()  # a subclass that does wait; the SDK warns of names that are taken
    return set()


def as_function(tool: Tool[Any], service: Service) -> Callable[..., Awaitable[Any]]:
    """Return ``tool`` as the SDK wants it: a function with the author's parameters and a ``Context``.

    From these the SDK makes the schemas; arguments are checked by the tool.
    """

    async def call_tool(**parsed: Any) -> object:  # noqa: ANN401 - whatever the client sent
        context: Context[Any, Any] = parsed.pop(CONTEXT_PARAMETER)
        request = McpRequest(
            context.request_context, context.request_state, context.input_responses
        )
        with told(tool, request, McpToolError):
            arguments = validate(tool, _given(tool, parsed, context), parsed)
            outcome = await serve(tool, arguments, request, service)
        return plain(tool, outcome, McpToolError)

    parameters = [
        *open_parameters(tool),
        inspect.Parameter(CONTEXT_PARAMETER, inspect.Parameter.KEYWORD_ONLY, annotation=Context),
    ]
    call_tool.__name__ = call_tool.__qualname__ = tool.name
    call_tool.__doc__ = tool.description
    signature = inspect.Signature(parameters, return_annotation=tool.returns)
    call_tool.__signature__ = signature  # type: ignore[attr-defined]
    call_tool.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    if tool.returns is not inspect.Signature.empty:
        call_tool.__annotations__["return"] = tool.returns
    return call_tool


def _given(
    tool: Tool[Any], parsed: Mapping[str, Any], context: Context[Any, Any]
) -> Mapping[str, Any]:
    """Return the arguments as they came, since the SDK drops those that it does not know.

    Where the request is for another tool, which calls this one, what that one gave is all there is.
    """
    params = context.request_context.params or {}
    if params.get("name") == tool.name:
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        return arguments
    return {name: value for name, value in parsed.items() if value is not MISSING}
