"""Running MCP servers as the source of an agent's tools."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast, get_args
from urllib.parse import urlsplit

import mcp_types as types
from mcp import StdioServerParameters

from anabranch._asking import Capabilities
from anabranch._text import printable
from anabranch.agents._agent_tools import AgentTool
from anabranch.agents._remote_call import LiveCalls
from anabranch.agents._remote_tool import RemoteTool, ServerTool
from anabranch.agents._remote_values import RemoteLimits
from anabranch.mcp import COMMAND, Connectable, Era, Started, ToolServer, WithHeaders, command_of
from anabranch.messages import ToolSpec
from anabranch.tool import has_methods, wrong_kind

if TYPE_CHECKING:
    from fastmcp import FastMCP


class ToolChoice:
    """Chooses tools of servers by names, or patterns such as ``issues_*``; without ``only``, all."""

    def __init__(self, only: Iterable[str] = (), without: Iterable[str] = ()) -> None:
        self._only = _names("only", only) or ("*",)
        self._without = _names("without", without)

    def takes(self, *names: str) -> bool:
        return _match(self._only, names) and not _match(self._without, names)


def _names(argument: str, given: object) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = tuple(cast("Iterable[object]", given))
        if all(isinstance(each, str) for each in names):
            return cast("tuple[str, ...]", names)
        given = list(names)
    example = given if isinstance(given, str) else "search"
    raise TypeError(f"{argument}= takes a list of names, got {given!r}. Write [{example!r}].")


def _match(patterns: Iterable[str], names: Iterable[str]) -> bool:
    tried = tuple(names)
    return any(fnmatchcase(name, each) for each in patterns for name in tried)


LONGEST_NAME: Final = 64
"""Maximum characters of a tool's name that every provider accepts."""
MOST_NAMES: Final = 10_000
"""Maximum names that tools of all servers have had; tools with further names are left out."""

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]+")


class RemoteTools:
    """The tools of running MCP servers, for ``Agent(tools=[…])``; ``async with`` connects to them.

        async with RemoteTools("https://example.com/mcp", "command:uvx some-server") as remote:
            agent = Agent(store, model, tools=[book_flight, remote])

    A tool keeps the server's name for it, without characters that providers refuse. If the agent
    has a tool of that name already, the name begins with the server's name: ``example_search``. A
    name never passes from one tool to another. The agent follows changes of the servers' tool
    lists.

    Args:
        servers: each a URL, ``command:`` with the command that starts a server, a server of FastMCP,
            or another target of the SDK's client.
        headers: HTTP headers for the requests to the URLs, which must then be of one origin.
        env: environment variables of the processes that ``command:`` starts. A process inherits
            only the variables that the SDK names, such as ``PATH``.
        era: the revision of MCP: ``modern`` (2026-07-28), ``handshake`` (up to 2025-11-25), or
            ``auto`` for the newest that a server offers.
        limits: the limits of each call of their tools.
        only: names of the tools to offer, or patterns such as ``issues_*``; by default, all.
        without: names or patterns of tools to leave out. ``only`` and ``without`` match the
            server's name of a tool, and the name by which the model calls the tool.

    Raises:
        ValueError: if a server has another form, ``headers`` would go to several origins, or
            ``env`` is given without a ``command:``.
        TypeError: if an argument is of the wrong kind.
    """

    def __init__(
        self,
        *servers: Connectable | FastMCP[Any],
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        era: Era = "auto",
        limits: RemoteLimits | None = None,
        only: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> None:
        _require_kinds(headers, env, era, limits)
        if headers and len({_origin(each) for each in servers if _is_url(each)}) != 1:
            raise ValueError("Headers are for one server. Give exactly one URL along with them.")
        if env and not any(isinstance(each, str) and not _is_url(each) for each in servers):
            raise ValueError(
                "Environment variables are for servers that this process starts. Give at least one"
                " server as command:…, or give no variables."
            )
        self._servers = [
            ToolServer(_targets(each, headers or {}, env or {}), _place(each), Capabilities(), era)
            for each in servers
        ]
        self._live = LiveCalls()
        self._limits = limits or RemoteLimits()
        self._choice = ToolChoice(only, without)
        self._labels: list[str] = []
        self._names: dict[frozenset[str], dict[tuple[int, str], str]] = {}
        self._made: dict[str, RemoteTool] = {}

    async def __aenter__(self) -> Self:
        """Connect to all servers.

        Raises:
            ToolError: if a server cannot be reached, or does not speak MCP.
        """
        opening = [asyncio.ensure_future(server.open()) for server in self._servers]
        try:
            names = await asyncio.gather(*opening)
        except BaseException:
            for each in opening:
                each.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
            await self.aclose()
            raise
        places = [server.place for server in self._servers]
        self._labels = [
            _fit(name) or _fit(place) for name, place in zip(names, places, strict=True)
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.aclose()

    @property
    def was_opened(self) -> bool:
        """Whether the connections were opened; before that, the tools are unknown."""
        return bool(self._labels) or not self._servers

    async def aclose(self) -> None:
        """Close all connections, and cancel the calls that wait for a user over a connection."""
        await self._live.aclose()
        for server in self._servers:
            await server.close()

    def offered_tools(self, taken: Collection[str], /) -> Sequence[AgentTool]:
        """Return the servers' present tools, under names that are not in ``taken``."""
        names = self._names.setdefault(frozenset(taken), {})
        used = {*taken, *names.values()}
        tools: list[AgentTool] = []
        for number, server in enumerate(self._servers):
            for tool in server.tools.tools.values():
                key = number, tool.name
                if key not in names and len(names) < MOST_NAMES:
                    names[key] = _new_name(tool.name, self._labels[number], used)
                    used.add(names[key])
                if key in names and self._choice.takes(tool.name, names[key]):
                    tools.append(self._tool(names[key], server, tool))
        return tools

    def _tool(self, name: str, server: ToolServer, tool: types.Tool) -> RemoteTool:
        made = self._made.get(name)
        if made is None or made.listed is not tool:
            text = printable(tool.description or tool.title or "")
            spec = ToolSpec(name=name, description=text, input_schema=tool.input_schema)
            whole = ServerTool(server, tool, spec, self._limits, self._live)
            made = self._made[name] = RemoteTool(whole)
        return made


def _require_kinds(headers: object, env: object, era: object, limits: object) -> None:
    """Check the kinds of the arguments; the errors show no header or variable, which may be secret."""
    wanted = {"headers": (headers, {"X-Key": "…"}), "env": (env, {"API_KEY": "…"})}
    for name, (given, example) in wanted.items():
        if given is not None and not _are_texts_by_name(given):
            raise TypeError(
                f"RemoteTools() takes the texts of {name} by name, got {type(given).__name__}."
                f" Write {name}={example!r}."
            )
    if era not in get_args(Era):
        eras = "era='auto', era='modern' or era='handshake'"
        raise ValueError(f"RemoteTools() does not take {era!r} as era. Write {eras}.")
    if not isinstance(limits, RemoteLimits | None):
        raise TypeError(
            f"RemoteTools() takes RemoteLimits as limits, got {type(limits).__name__}."
            " Write limits=RemoteLimits(max_result=100_000)."
        )


def _are_texts_by_name(given: object) -> bool:
    if not isinstance(given, Mapping):
        return False
    texts = cast("Mapping[object, object]", given)
    return all(isinstance(each, str) for each in (*texts.keys(), *texts.values()))


def _new_name(name: str, label: str, used: Collection[str]) -> str:
    own = _fit(name) or "tool"
    if own not in used:
        return own
    base, number = _fit(f"{label}_{own}"), 1
    found = base
    while found in used:
        number += 1
        found = f"{base[: LONGEST_NAME - 6]}_{number}"
    return found


def _fit(text: str) -> str:
    return _UNFIT.sub("_", text)[:LONGEST_NAME].strip("_")


def _is_url(server: Connectable | FastMCP[Any]) -> bool:
    return isinstance(server, str) and not server.startswith(COMMAND)


def _origin(server: Connectable | FastMCP[Any]) -> tuple[str, str]:
    url = urlsplit(str(server))
    return url.scheme, url.netloc


def _place(server: Connectable | FastMCP[Any]) -> str:
    """Return the name of a server for error messages, without arguments, query or password."""
    if _is_url(server):
        url = urlsplit(str(server))
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    if isinstance(server, StdioServerParameters):
        return server.command
    if isinstance(server, str):
        return command_of(server).command
    return str(getattr(server, "name", type(server).__name__))


def _targets(
    server: Connectable | FastMCP[Any], headers: Mapping[str, str], env: Mapping[str, str]
) -> Callable[[], Connectable]:
    if isinstance(server, StdioServerParameters):
        return partial(Started, server)
    if not isinstance(server, str):
        inner = getattr(server, "_mcp_server", server)  # the SDK's server inside FastMCP's
        if not (has_methods(inner, "run") or has_methods(inner, "__aenter__")):
            wanted = "servers, each a URL, command:… to start one, or a server of this process"
            raise wrong_kind("RemoteTools()", wanted, server)
        return lambda: cast("Connectable", inner)
    if _is_url(server):
        if urlsplit(server).scheme not in {"http", "https"}:
            raise ValueError(
                f"{server!r} is neither the URL of a server nor command:… to start one."
            )
        return partial(WithHeaders, server, headers)
    return partial(Started, command_of(server, env))
