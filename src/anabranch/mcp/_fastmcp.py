"""Tools into a FastMCP server: one by one, or several with all that they share.

Owns the options, and that FastMCP is imported when it is needed and not before: it is an extra,
and takes a second to import. What FastMCP is handed is made in ``fastmcp_host.py``.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch._asking.sampling import Sampler
from anabranch._engine.clock import Clock, SystemClock
from anabranch.limits import Limits
from anabranch.mcp._installation import TTL, Installation, Keys, Store, named_once
from anabranch.tool import Tool

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.server.extensions import ServerExtension
    from fastmcp.tools.base import Tool as BaseTool

__all__ = ["as_fastmcp_tool", "fastmcp_sagas", "install_fastmcp"]


def as_fastmcp_tool(
    tool: Tool[Any],
    *,
    ttl: float = TTL,
    store: Store | None = None,
    sampler: Sampler | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
) -> BaseTool:
    """Return ``tool`` as FastMCP's ``add_tool`` takes it; it serves both eras.

    With a store, effects happen once whatever clients repeat. That calls which nobody continues
    are undone, and that a call can be picked up again, takes more than one tool:
    :func:`install_fastmcp`.

    Args:
        tool: the tool.
        ttl: seconds that a person has for one round, by ``FastMCP(request_state_security=)``.
        store: where calls are kept: a URL as of ``anabranch.stores.open_store``, a store, or a
            ``Durability``.
        sampler: a model of the server's own; without one, the client's is asked.
        limits: enclose every call, in addition to the tool's own.
        clock: time for calls and their leases; the system's by default.

    Raises:
        ImportError: the extra ``fastmcp`` is not installed.
        StoreError: the store's URL cannot be understood.
    """
    with _extra():
        from anabranch.mcp._fastmcp_host import FastMcpTool  # noqa: PLC0415 - an extra
    installation = Installation(
        tool.name,
        keys=None,
        ttl=ttl,
        store=store,
        sampler=sampler,
        limits=limits,
        clock=clock,
        continue_calls=False,
    )
    return FastMcpTool.of(tool, installation.service)


def fastmcp_sagas(
    *, keys: Keys | None = None, ttl: float = TTL, clock: Clock | None = None
) -> ServerExtension:
    """Return the saga methods as FastMCP's ``add_extension`` takes them.

    They call every tool of :func:`as_fastmcp_tool` that the server shows to who is asking.

    Args:
        keys: secrets of at least 32 bytes that seal the tokens; the first seals, all open.
            Without keys one is made for this process.
        ttl: seconds that a token is good for.
        clock: time; the system's by default.

    Raises:
        ImportError: the extra ``fastmcp`` is not installed.
    """
    with _extra():
        from anabranch.mcp._fastmcp_host import FastMcpSagas  # noqa: PLC0415 - an extra
    return FastMcpSagas(keys, ttl, clock or SystemClock())


def install_fastmcp(
    server: FastMCP[Any],
    *tools: Tool[Any],
    keys: Keys | None = None,
    ttl: float = TTL,
    store: Store | None = None,
    sampler: Sampler | None = None,
    limits: Limits | None = None,
    continue_calls: bool = True,
    clock: Clock | None = None,
) -> Installation:
    """Add ``tools`` to a FastMCP server, and the saga methods if it has none of ours.

    What seals the state of ``tools/call`` is the server's own, ``FastMCP(request_state_security=)``;
    ``keys`` and ``ttl`` are for the tokens of sagas. With a store, calls that nobody continues are
    undone while the server runs. What becomes of a tool whose name the server knows already is
    the server's ``on_duplicate``. Call it before the server is started.

    Args:
        server: the server.
        tools: what to add.
        keys: as of :func:`fastmcp_sagas`.
        ttl: seconds that a person has for one round.
        store: as of :func:`as_fastmcp_tool`.
        sampler: a model of the server's own; without one, the client's is asked.
        limits: enclose every call, in addition to each tool's own.
        clock: time for calls, their leases and tokens; the system's by default.
        continue_calls: with a store, let a call that needs more rounds than clients allow be
            picked up again, by a tool ``continue_call``.

    Raises:
        ImportError: the extra ``fastmcp`` is not installed.
        ValueError: a key is too short, or two of the tools have the same name.
        StoreError: the store's URL cannot be understood.
    """
    with _extra():
        from anabranch.mcp._fastmcp_host import (  # noqa: PLC0415 - an extra
            FastMcpSagas,
            FastMcpTool,
        )
    now = clock or SystemClock()
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
    offered = named_once(installation.add(*tools))
    sagas = FastMcpSagas.on(server)
    if sagas is None:
        sagas = FastMcpSagas(keys, ttl, now)
        server.add_extension(sagas)
    sagas.sweep(installation)
    for tool in offered:
        server.add_tool(FastMcpTool.of(tool, installation.service))
    return installation


@contextmanager
def _extra() -> Generator[None, None, None]:
    """Say which extra is missing, where one is."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"Serving tools with FastMCP needs the package {missing.name!r}, which is not"
            " installed. Install anabranch[fastmcp]."
        ) from missing
