"""The parts of a chat in a process of its own: tools, model, stores, memory and engine."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from anabranch._aio import run_shielded
from anabranch._asking import Sampler
from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal import Console, UsageError
from anabranch.agents import BranchSelf, Folding
from anabranch.agents import Model as AgentModel
from anabranch.chat import Plugin, make_plugin
from anabranch.chat._terminal_session.input_lines import (
    InputLines,
    TypedLines,
    piped_lines,
    read_script,
)
from anabranch.chat._terminal_session.live_replies import LiveReplies
from anabranch.chat._terminal_session.replies import Replies
from anabranch.cli._answering import open_sampler
from anabranch.cli._chat_tools import ChatTool, connected, tools_of
from anabranch.cli._demo_tool import Outcome, PickCard, pick_card
from anabranch.cli._engine_option import open_engine
from anabranch.cli._folding import open_branches
from anabranch.cli._memory import learning, open_bank
from anabranch.cli._options import MODEL, STORE, store_url
from anabranch.cli._web_models import DemoModel, WithoutModel
from anabranch.engines import Engine
from anabranch.errors import StoreError
from anabranch.memory import ReasoningBank, memory_tools
from anabranch.models import ModelError, open_model
from anabranch.stores import CallStore, open_stores
from anabranch.tool import checked_version
from anabranch.tree import TreeStore


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of a chat that the user has typed.

    Attributes:
        targets: files, modules and servers that have the tools.
        thread: thread to continue; ``last`` for the latest.
        at: node to continue at.
        store: URL of the store.
        model: name of the model.
        script: file whose lines are the input.
        limits: limits of each turn and of its tools.
        folding: whether the model may do subtasks in branches.
        memory: whether the model gets the tools of the memory.
        system: system prompt of a new conversation.
        prompt: the one message of a chat that ends with its answer.
        headers: headers of the requests to the targets' servers.
        variables: environment of the targets' servers that this process starts.
    """

    targets: Sequence[str] = ()
    thread: str | None = None
    at: str | None = None
    store: str | None = None
    model: str | None = None
    script: Path | None = None
    limits: Limits = UNLIMITED
    folding: bool = False
    memory: bool = False
    system: str | None = None
    prompt: str | None = None
    headers: Sequence[str] = ()
    variables: Sequence[str] = ()


def lines_of(script: Path | None, console: Console) -> InputLines:
    """Return the lines of a script, a pipe or a user."""
    if script is not None and str(script) != "-":
        return read_script(script)
    if not console.interactive or script is not None:
        return piped_lines(sys.stdin.fileno())
    return TypedLines(console.stream, data_folder() / "chat_history")


def replies_to(lines: InputLines, console: Console) -> Replies:
    """Return the display of replies: formatted if all output goes to a terminal, else plain."""
    live = isinstance(lines, TypedLines) and sys.stdout.isatty()
    return LiveReplies(console) if live else Replies()


def command_to_go_on(options: ChatOptions, thread_id: str) -> str | None:
    """Return the command that continues a thread with ``options``; ``None`` if it is not stored.

    The command leaves out settings of the environment, and the values of headers and variables, which
    may be secrets.
    """
    if options.store is not None and options.store.startswith("memory:"):
        return None
    words = ["anabranch", "chat", *options.targets, "--thread", thread_id]
    for name, given, variable in (
        ("--store", options.store, STORE),
        ("--model", options.model, MODEL),
    ):
        if given is not None and given != os.environ.get(variable):
            words += [name, given]
    for header in options.headers:
        words += ["--header", f"{header.partition(':')[0]}: …"]
    for variable in options.variables:
        name, equals, _ = variable.partition("=")
        words += ["--env", f"{name}=…" if equals else name]
    for name, value in asdict(options.limits).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    words += ["--folding"] if options.folding else []
    words += ["--memory"] if options.memory else []
    return shlex.join(words)


def data_folder() -> Path:
    """Return the folder for the data that chats store next to conversations."""
    return user_data_path("anabranch", appauthor=False)


@dataclass(frozen=True, slots=True)
class ChatParts:
    """The parts of a chat.

    Attributes:
        tools: tools that the model and the user may call.
        model: model that replies.
        calls: store of the calls of tools.
        trees: store of the conversations.
        engine: wakes workers; ``None`` for those of this process.
        bank: store of memories, if there is a memory.
        memory: whether the model and the page may use the memory.
        learner: learns from branches.
        version: version of the tools' code; ``None`` for a digest of it.
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

        The end of the block closes the stores and the engine; the learner hands its branch back first.

        Raises:
            FailedError: if a server cannot be reached.
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
        UsageError: if a part cannot be made.
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
    """Return the card game, with cards to click in the page; the server keeps the winning card."""
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
