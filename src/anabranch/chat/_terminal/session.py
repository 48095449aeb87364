"""A session: one user leads a conversation with an agent by typed messages, commands and settings.

The usage of a command: ``NODE`` is required, ``[N]`` optional, and ``TEXT…`` takes the rest.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Concatenate, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch._aio import run_shielded
from anabranch._asking import describe
from anabranch.agents import Agent, Event, Listener, Model, NodeAdded, TurnLimits, offered
from anabranch.chat._terminal.session_cursor import SessionCursor
from anabranch.chat._terminal.session_output import Output, SessionError, error_text
from anabranch.chat._turns import end_turn
from anabranch.errors import StoreError
from anabranch.messages import FileBlock
from anabranch.tree import HEAD, Thread, TreeStore, digests_in

logger: logging.Logger = logging.getLogger("anabranch.chat")


class SessionSettings(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(validate_assignment=True, extra="forbid")

    verbose: bool = Field(default=True, description="show the work of tools and branches")
    width: int = Field(60, ge=10, le=1_000, description="maximum characters of a message in /tree")
    auto_prompt: str = Field(
        "ok", min_length=1, description="the message that /auto sends to a model"
    )
    max_requests: int = Field(50, ge=1, description="maximum requests to the model in a turn")
    max_tokens: int | None = Field(
        None, ge=1, description="maximum tokens of a turn; none for no limit"
    )
    max_reply_tokens: int = Field(8_192, ge=1, description="maximum tokens of one reply")
    max_depth: int = Field(4, ge=0, description="maximum depth of nested branches")
    max_branches_per_call: int = Field(
        50, ge=1, description="maximum branches of one branch_self call"
    )
    max_concurrent_requests: int = Field(
        100, ge=1, description="maximum requests to the model at the same time"
    )

    @classmethod
    def of(cls, limits: TurnLimits) -> SessionSettings:
        return cls(**{name: getattr(limits, name) for name in cls._limit_names()})

    def limits(self, base: TurnLimits) -> TurnLimits:
        return replace(base, **{name: getattr(self, name) for name in self._limit_names()})

    def change(self, name: str, text: str) -> None:
        if name not in type(self).model_fields:
            known = ", ".join(type(self).model_fields)
            raise SessionError(f"There is no setting {name!r}. Settings: {known}.")
        try:
            setattr(self, name, None if text.lower() == "none" else text)
        except ValidationError as error:
            raise SessionError(f"{describe(error)}.") from None

    def listing(self) -> str:
        fields = type(self).model_fields
        width = max(map(len, fields))
        return "\n".join(
            f"{name:{width}} = {_value_text(getattr(self, name))}  ({field.description})"
            for name, field in fields.items()
        )

    @classmethod
    def _limit_names(cls) -> set[str]:
        return set(cls.model_fields) & set(TurnLimits.__dataclass_fields__)


def _value_text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


class ModelCatalogue(Protocol):
    def open(self, name: str) -> Model:
        """Return the model ``name``; raise ``ModelError`` if the model cannot be opened."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of known models; others may work as well."""
        ...


class Session:
    """A conversation that a user leads, line by line, with a copy of ``agent``.

    The first message creates a thread that does not exist. ``columns`` returns the width of the
    screen; ``unanswered`` is the last message without an answer from a model.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        thread_id: str | None = None,
        model_name: str = "none",
        models: ModelCatalogue | None = None,
        system_prompt: str | None = None,
        columns: Callable[[], int] | None = None,
    ) -> None:
        given = agent.dependencies
        self.agent: Agent = copy(agent)
        self.agent.dependencies = replace(given, listener=self._on_event)
        self.cursor: SessionCursor = SessionCursor(agent.store, thread_id or given.naming("thread"))
        self.model_name: str = model_name
        self.models: ModelCatalogue | None = models
        self.columns: Callable[[], int] | None = columns
        self.settings: SessionSettings = SessionSettings.of(given.limits)
        self.unanswered: str | None = None
        self.attached: list[tuple[FileBlock, bytes]] = []
        self._system_prompt = system_prompt
        self._listener: Listener = given.listener

    @property
    def store(self) -> TreeStore:
        return self.agent.store

    async def start(self) -> list[Output]:
        outputs = await self.cursor.open(self.cursor.thread_id)
        self.cursor.clear_history()
        return outputs

    def switch(self, model: Model, name: str) -> None:
        given = self.agent.dependencies
        capabilities = offered(given.capabilities, model)
        self.agent.dependencies = replace(given, model=model, capabilities=capabilities)
        self.model_name = name

    def configure(self, name: str, text: str) -> None:
        self.settings.change(name, text)
        given = self.agent.dependencies
        self.agent.dependencies = replace(given, limits=self.settings.limits(given.limits))

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, NodeAdded):
            self.cursor.follow(event.node)
        await self._listener(event)

    async def thread(self, text: str) -> Thread:
        await self.cursor.check()
        store, thread_id = self.store, self.cursor.thread_id
        thread = await store.thread(thread_id)
        if thread is None:
            title = " ".join(text.split())[:60]
            now = self.agent.dependencies.clock.now()
            thread = Thread(thread_id, now, self._system_prompt, title)
            try:
                await store.create_thread(thread)
            except StoreError:
                # Another session may have created the thread meanwhile.
                existing = await store.thread(thread_id)
                if existing is None:
                    raise
                return existing
        return thread

    async def discard_unanswered(self) -> None:
        """Delete the message at the cursor if its model failed; the next gets its files."""
        here, store = self.cursor.node_id, self.store
        if here is None or here != self.unanswered or await store.children(here):
            return
        message = await self.cursor.node()
        refs = await store.refs(self.cursor.thread_id)
        labelled = {node_id for name, node_id in refs.items() if name != HEAD}
        if message is not None and here not in labelled:
            files = await store.files(message.thread_id, digests_in([message.content]))
            await store.delete_subtree(here)
            self.attached[:0] = [
                (block, files[block.digest or ""])
                for block in message.content
                if isinstance(block, FileBlock) and block.digest in files
            ]
            self.cursor.node_id = message.parent_id

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        try:
            yield
        except asyncio.CancelledError:
            await run_shielded(self._store_stop())
            raise
        except Exception as error:
            await self._store_end(error_text(error))
            raise

    async def _store_stop(self) -> None:
        await self.cursor.catch_up()
        await self._store_end(None)

    async def _store_end(self, error: str | None) -> None:
        if self.cursor.node_id is None:
            return
        try:
            await end_turn(self.agent, self.cursor.thread_id, self.cursor.node_id, error)
        except StoreError:
            logger.exception("could not store the end of a turn")


Outputs: TypeAlias = Output | list[Output]
"""The output of a command for the front end."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a session, without its slash; ``run`` takes one text for each argument."""

    name: str
    usage: str
    help: str
    run: Callable[Concatenate[Session, ...], Awaitable[Outputs]]

    @property
    def call(self) -> str:
        return f"/{self.name} {self.usage}".rstrip()

    @property
    def min_arguments(self) -> int:
        return sum(not word.startswith("[") for word in self.usage.split())

    def accepts(self, text: str) -> bool:
        words, usage = len(text.split()), self.usage.split()
        return words >= self.min_arguments and ("…" in self.usage or words <= len(usage))

    def arguments(self, text: str) -> list[str]:
        if not self.accepts(text):
            raise SessionError(f"Write {self.call}.")
        count = len(self.usage.split())
        return text.split(maxsplit=count - 1) if "…" in self.usage else text.split()


def unknown_command(name: str, known: Iterable[str]) -> SessionError:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean /{near[0]}?" if near else ""
    return SessionError(f"Unknown command /{name}.{hint} /help lists the commands.")
