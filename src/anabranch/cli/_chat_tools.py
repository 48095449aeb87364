"""The tools of a chat: those in its files and modules, and those of its servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias

from anabranch._terminal import FailedError, UsageError
from anabranch.agents import AgentTool, BranchSelf, RemoteTools, ToolSource
from anabranch.agents._remote_tools import ToolChoice
from anabranch.chat import Plugin
from anabranch.cli._options import variables_of
from anabranch.cli._targets import Found, is_server, load
from anabranch.cli._tokens import headers_of
from anabranch.errors import ToolError
from anabranch.mcp import Connectable
from anabranch.tool import Tool

ChatTool: TypeAlias = Tool[Any] | AgentTool | ToolSource


def tools_of(
    targets: Sequence[str],
    headers: Iterable[str] = (),
    env: Iterable[str] = (),
    choice: tuple[Iterable[str], Iterable[str]] = ((), ()),
) -> list[ChatTool | Plugin[Any]]:
    """Return the tools of a chat: ``branch_self``, and those that the targets offer.

    A plugin replaces its tool. ``choice`` has the tools to offer, and those to leave out.

    Raises:
        UsageError: if a target cannot be loaded or offers nothing, or if two tools have one name.
    """
    local = [target for target in targets if not is_server(target)]
    found = load(local) if local else Found()
    only, without = choice
    chosen = ToolChoice(only, without)
    plugged = {id(plugin.mcp) for plugin in found.plugins}
    tools: list[Tool[Any] | AgentTool | Plugin[Any]] = [
        BranchSelf(),
        *(tool for tool in found.tools if id(tool) not in plugged and chosen.takes(tool.name)),
        *(plugin for plugin in found.plugins if chosen.takes(plugin.mcp.name)),
    ]
    check_names(tools)
    servers: list[Connectable] = [
        *(target for target in targets if is_server(target)),
        *found.connectable,
    ]
    try:
        sent, variables = headers_of(None, headers), variables_of(env)
        if not (servers or sent or variables):
            return [*tools]
        remote = RemoteTools(*servers, headers=sent, env=variables, only=only, without=without)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return [*tools, remote]


def check_names(tools: Iterable[Tool[Any] | AgentTool | Plugin[Any]]) -> None:
    """Refuse two tools, or plugins, of one name.

    Raises:
        UsageError: if two have one name.
    """
    names = Counter(each.mcp.name if isinstance(each, Plugin) else each.name for each in tools)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UsageError(f"Two tools, or plugins, are called {twice[0]}. Leave one of them out.")


@asynccontextmanager
async def connected(tools: Iterable[object]) -> AsyncGenerator[None]:
    """Hold the connections to servers open.

    Raises:
        FailedError: if a connection cannot be made.
    """
    async with AsyncExitStack() as stack:
        for each in tools:
            if isinstance(each, RemoteTools):
                try:
                    await stack.enter_async_context(each)
                except ToolError as error:
                    raise FailedError(str(error)) from error
        yield
