"""The web application of the chat: a page, a run endpoint of AG-UI, and the routes beside it.

It can be served by itself (``anabranch web``) or mounted in another ASGI application.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from anabranch._durable.policy import Durability
from anabranch._durable.store import CallStore
from anabranch._engine.combine import cancel_and_wait
from anabranch.agents import AgentTool, Model, ToolSource, TurnLimits
from anabranch.chat._bridge.plugin import Plugin
from anabranch.chat._web.access import LOOPBACK, Access
from anabranch.chat._web.agui_route import agui_route
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.page_files import page_route
from anabranch.chat._web.routes import ERRORS, Routes
from anabranch.tool import Tool
from anabranch.tree import TreeStore

__all__ = ["make_chat_app"]


def make_chat_app(
    store: TreeStore,
    model: Model,
    tools: Iterable[Tool[Any] | AgentTool | ToolSource | Plugin[Any]] = (),
    *,
    calls: CallStore | Durability | None = None,
    limits: TurnLimits | None = None,
    token: str | None = None,
    hosts: Iterable[str] = LOOPBACK,
    closes_store: bool = False,
) -> Starlette:
    """Return the web application.

    Args:
        store: stores the conversations, and what happens in them: a page that comes back, or is
            connected to another process with the same store, gets what it has missed. Beside a
            store that is not of :mod:`anabranch.stores`, events are in memory.
        model: replies.
        tools: what the model, and the person, may call; a plugin stands for its tool.
        calls: stores the calls of tools, so that their effects happen once whatever dies.
        limits: of each turn.
        token: what every request must present, as ``Authorization: Bearer …``, or the page once as
            ``?token=…``. Without it, anyone who reaches the application may use it.
        hosts: the names by which it may be reached, without port; by default, those of this
            machine.
        closes_store: whether the store is closed when the application ends.
    """
    conversations = Conversations(store, model, tools, calls=calls, limits=limits)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        cleaning = [
            asyncio.ensure_future(conversations.agent.expire_calls()),
            asyncio.ensure_future(conversations.prune()),
        ]
        try:
            yield
        finally:
            await cancel_and_wait(cleaning)
            await conversations.close()
            if closes_store:
                await store.close()

    return Starlette(
        routes=[
            agui_route(conversations),
            *Routes(conversations).routes,
            page_route(),
        ],
        middleware=[Middleware(Access, token=token, hosts=hosts)],
        exception_handlers=ERRORS,
        lifespan=lifespan,
    )
