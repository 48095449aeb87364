"""The parts of a chat in one process: tools, model, stores, memory and engine; the worker's runs.

Without a model, a script plays the card game of the demo, or the user may answer samples.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from anabranch._aio import run_shielded
from anabranch._asking import Capabilities, Sampler
from anabranch._budget import Limits
from anabranch._terminal import (
    NO_MODEL,
    Console,
    FailedError,
    Respondent,
    UsageError,
    failing_as,
    handled_by,
    woken_by_signals,
)
from anabranch.agents import (
    AgentTool,
    BranchSelf,
    Folding,
    RemoteTools,
    ToolChoice,
    ToolSource,
    TurnLimits,
)
from anabranch.agents import Model as AgentModel
from anabranch.chat import Plugin, make_plugin
from anabranch.cli._answering import open_sampler
from anabranch.cli._demo_tool import Outcome, PickCard, pick_card
from anabranch.cli._memory import learning, open_bank, open_branches
from anabranch.cli._option_groups import AgentOptions, TurnOptions
from anabranch.cli._options import headers_of, store_url, variables_of
from anabranch.cli._output import cut_off_after
from anabranch.cli._stores import open_engine
from anabranch.cli._targets import Found, is_server, load
from anabranch.engines import Engine
from anabranch.errors import StoreError, ToolError
from anabranch.mcp import Connectable
from anabranch.memory import ReasoningBank, memory_tools
from anabranch.messages import SampleReply, SampleRequest
from anabranch.models import ModelError, SampleStream, ScriptedModel, known_models, open_model
from anabranch.stores import CallStore, open_stores
from anabranch.tool import Tool, checked_version
from anabranch.tree import TreeStore

OfferedTool: TypeAlias = Tool[Any] | AgentTool | ToolSource | Plugin[Any]


@dataclass(frozen=True, slots=True)
class ChatParts:
    """The parts of a chat; ``engine`` is ``None`` for the workers of this process."""

    tools: Sequence[OfferedTool]
    model: AgentModel
    calls: CallStore
    trees: TreeStore
    engine: Engine | None
    bank: ReasoningBank | None
    memory: bool
    learner: Sampler | None
    limits: TurnLimits
    tool_limits: Limits
    version: str | None

    @asynccontextmanager
    async def open(self, *, works: bool = True) -> AsyncGenerator[None]:
        """In the block, connect to servers, and learn if this process ``works`` on turns.

        The learner's branch returns to the queue at the end, before the stores close.
        """
        try:
            learner = self.learner if works else None
            async with AsyncExitStack() as stack:
                for each in self.tools:
                    if isinstance(each, RemoteTools):
                        with failing_as(FailedError, ToolError):
                            await stack.enter_async_context(each)
                await stack.enter_async_context(learning(self.bank, learner))
                yield
        finally:
            await run_shielded(self._close())

    async def _close(self) -> None:
        if self.engine is not None:
            await self.engine.close()
        await self.trees.close()


def parts_around(tools: Iterable[OfferedTool], model: AgentModel, agent: AgentOptions) -> ChatParts:
    turn, url, limits = agent.turn, store_url(agent.store), agent.turn.limits()
    learner = open_sampler(agent.model) if turn.memory else None
    wakes = open_engine(agent.engine, url)
    with failing_as(UsageError, StoreError, ValueError):
        named = checked_version(agent.version) if agent.version else None
        calls, trees = open_stores(url)
    bank = open_bank(trees) if turn.memory or turn.folding else None
    offered = [*tools]
    if turn.folding:
        offered.append(Folding(open_branches(trees, bank, learns=learner is not None)))
    if turn.memory and bank is not None:
        offered += memory_tools(bank)
    return ChatParts(
        offered,
        model,
        calls,
        trees,
        wakes,
        bank,
        turn.memory,
        learner,
        TurnLimits.of(limits),
        replace(limits, max_tokens=None),  # the turn counts the tokens of its tools
        named,
    )


def game() -> Plugin[Outcome]:
    """Return the card game, with cards to click in the page; the server keeps the winning card."""
    module = Path(__file__).with_name("pick_card.mjs")
    plugin = make_plugin(pick_card, expose=("params", "handoff.cards"))
    return plugin.on_page(PickCard.card, module).build()


def tools_of(targets: Sequence[str], turn: TurnOptions = TurnOptions()) -> list[OfferedTool]:
    local = [target for target in targets if not is_server(target)]
    found = load(local) if local else Found()
    only, without = turn.tools or (), turn.without or ()
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
    sent, variables = headers_of(None, turn.header or ()), variables_of(turn.env or ())
    if not (servers or sent or variables):
        return [*tools]
    with failing_as(UsageError, ValueError):
        remote = RemoteTools(*servers, headers=sent, env=variables, only=only, without=without)
    return [*tools, remote]


def check_names(tools: Iterable[Tool[Any] | AgentTool | Plugin[Any]]) -> None:
    names = Counter(each.mcp.name if isinstance(each, Plugin) else each.name for each in tools)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UsageError(f"Two tools, or plugins, are called {twice[0]}. Leave one of them out.")


_PLAY = {
    "text": "There is no model behind this page, so let us play a card game.",
    "tool_calls": [{"name": "pick_card", "arguments": {"count": 5}}],
}
_AGAIN = {
    "text": "That was one tool, which drew cards, asked you, and returned **one value** to me."
    " Say anything to play again, or call it yourself: `/pick_card count=3`.\n\n"
    "With a model and tools of your own: `anabranch web tools.py --model anthropic:…`"
}


class DemoModel:
    async def sample(self, request: SampleRequest) -> SampleReply:
        return await _scripted(request).sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        return _scripted(request).stream(request)


def _scripted(request: SampleRequest) -> ScriptedModel:
    last = request.messages[-1].content if request.messages else ()
    returned = any(block.type == "tool_result" for block in last)
    return ScriptedModel([_AGAIN if returned else _PLAY], "demo")


class WithoutModel:
    def __init__(self, respondent: Respondent | None = None) -> None:
        self._respondent = respondent

    @property
    def capabilities(self) -> Capabilities:
        if self._respondent is None:
            return Capabilities(sampling=False, sampling_tools=False)
        return self._respondent.capabilities

    async def sample(self, request: SampleRequest) -> SampleReply:
        if self._respondent is None:
            raise self._refusal
        return await self._respondent.sample(request)

    def stream(self, request: SampleRequest) -> AbstractAsyncContextManager[SampleStream]:
        del request
        raise self._refusal

    @property
    def _refusal(self) -> ModelError:
        how = f"No model is configured: {NO_MODEL}"
        if self._respondent is not None:
            how += ", or choose one by /switch; /auto then answers your message"
        return ModelError(f"{how}. Tools run without a model: /TOOL name=value.")


class ChatModels:
    def open(self, name: str) -> AgentModel:
        return open_model(name, cache=True)

    def names(self) -> Sequence[str]:
        return known_models()


async def work(parts: ChatParts, concurrency: int, per_user: int | None, grace: float) -> None:
    """Execute the runs of chats that wait for a worker, until a signal: ``anabranch worker``."""
    from anabranch.chat import Conversations

    conversations = Conversations(
        parts.trees,
        parts.model,
        parts.tools,
        limits=parts.limits,
        tool_limits=parts.tool_limits,
        calls=parts.calls,
        engine=parts.engine,
        per_principal=per_user,
        code_version=parts.version,
    )
    with failing_as(FailedError, StoreError):
        async with parts.open():
            if parts.engine is not None:
                await parts.engine.backlog()  # fails if the engine is unreachable
            with _until_signal() as ended:
                async with conversations.running(concurrency):
                    Console().say(f"The worker takes runs, {concurrency} at a time.")
                    await ended.wait()
                    why = f"Not everything has ended within {grace:g} s;"
                    cut_off_after(grace, f"{why} another worker continues the rest.")


@contextmanager
def _until_signal() -> Generator[asyncio.Event]:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def end(number: int, frame: FrameType | None) -> None:
        del number, frame
        loop.call_soon_threadsafe(ended.set)

    with woken_by_signals(loop), handled_by(end, (signal.SIGINT, signal.SIGTERM)):
        yield ended
