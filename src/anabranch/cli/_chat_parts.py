"""The parts of a chat in a process of its own: tools, model, stores, memory and engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch._aio import run_shielded
from anabranch._asking.sampling import Sampler
from anabranch._terminal.exits import UsageError
from anabranch.agents import BranchSelf, Folding
from anabranch.agents import Model as AgentModel
from anabranch.chat import Plugin, make_plugin
from anabranch.cli._answering import open_sampler
from anabranch.cli._chat_tools import ChatTool, connected, tools_of
from anabranch.cli._demo_tool import Outcome, PickCard, pick_card
from anabranch.cli._engine_option import open_engine
from anabranch.cli._folding import open_branches
from anabranch.cli._memory import learning, open_bank
from anabranch.cli._options import store_url
from anabranch.cli._web_models import DemoModel, WithoutModel
from anabranch.engines import Engine
from anabranch.errors import StoreError
from anabranch.memory import ReasoningBank, memory_tools
from anabranch.models import ModelError, open_model
from anabranch.stores import CallStore, open_stores
from anabranch.tool import checked_version
from anabranch.tree import TreeStore


@dataclass(frozen=True, slots=True)
class ChatParts:
    """The parts.

    Attributes:
        tools: what the model, and the person, may call.
        model: replies.
        calls: stores the calls of tools.
        trees: stores the conversations.
        engine: calls workers; ``None`` for those of this process.
        bank: what was learned, if there is a memory.
        memory: whether the model and the page have that memory.
        learner: learns from branches.
        version: that of the tools' code; ``None`` for a digest of it.
    """

    tools: Sequence[ChatTool | Plugin[Any]]
    model: AgentModel
    calls: CallStore
    trees: TreeStore
    engine: Engine | None
    bank: ReasoningBank | None
    memory: bool
    learner: Sampler | None
    version: str | None = None

    @asynccontextmanager
    async def open(self, *, works: bool = True) -> AsyncGenerator[None]:
        """Hold the connections to servers open, and learn if this process works, inside the block.

        After it, the stores and the engine are closed: what learns hands its branch back first.

        Raises:
            FailedError: a server cannot be reached.
        """
        try:
            learner = self.learner if works else None
            async with connected(self.tools), learning(self.bank, learner, self.engine):
                yield
        finally:
            await run_shielded(self._close())

    async def _close(self) -> None:
        if self.engine is not None:
            await self.engine.close()
        await self.trees.close()


def open_parts(  # noqa: PLR0913 - options
    targets: Sequence[str],
    *,
    header: Sequence[str] | None,
    env: Sequence[str] | None = None,
    choice: tuple[Sequence[str], Sequence[str]] = ((), ()),
    model: str | None,
    store: str | None,
    engine: str | None,
    folding: bool,
    memory: bool,
    version: str | None = None,
) -> ChatParts:
    """Return the parts that the options name.

    Raises:
        UsageError: one of them cannot be made.
    """
    given = bool(targets or header or env)
    tools: list[ChatTool | Plugin[Any]] = (
        tools_of(targets, header or (), env or (), choice) if given else [BranchSelf(), game()]
    )
    replies = _model(model, targets)
    url, learner = store_url(store), open_sampler(model) if memory else None
    shares = open_engine(engine, url)
    try:
        named = checked_version(version) if version else None
        calls, trees = open_stores(url)
    except (StoreError, ValueError) as error:
        raise UsageError(str(error)) from error
    bank = open_bank(trees) if memory or folding else None
    if folding:
        tools.append(Folding(open_branches(trees, bank, learns=learner is not None)))
    if memory and bank is not None:
        tools += memory_tools(bank)
    return ChatParts(tools, replies, calls, trees, shares, bank, memory, learner, named)


def game() -> Plugin[Outcome]:
    """Return the card game, with cards to click in the page; which of them wins stays here."""
    module = Path(__file__).with_name("pick_card.mjs")
    plugin = make_plugin(pick_card, expose=("params", "handoff.cards"))
    return plugin.on_page(PickCard.card, module).build()


def _model(name: str | None, targets: Sequence[str]) -> AgentModel:
    try:
        if name is not None:
            return open_model(name, cache=True)
    except ModelError as error:
        raise UsageError(str(error)) from error
    return WithoutModel() if targets else DemoModel()
