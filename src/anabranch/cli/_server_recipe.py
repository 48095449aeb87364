"""The recipe of ``anabranch serve``: it makes the server, in this process and in each worker's.

What the command line gives completes the servers that the targets make themselves; what they set
themselves is reported, and not replaced.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE

from anabranch._asking import Sampler
from anabranch._budget import UNLIMITED, Limits
from anabranch._terminal import CommandError, UsageError, log_to_stderr
from anabranch._text import LogFormat, printable
from anabranch.cli._answering import open_sampler
from anabranch.cli._combined_server import (
    CLIENTS_ONLY,
    Asking,
    Persistence,
    assemble,
    assemble_fastmcp,
    foreign,
    opens,
    server_options,
)
from anabranch.cli._http_access import CONCURRENCY, Access
from anabranch.cli._http_lifetime import Lifetime
from anabranch.cli._options import MODEL, STORE, TOKEN, store_url
from anabranch.cli._stores import KEYS
from anabranch.cli._targets import Found, load, name_of
from anabranch.engines import Engine
from anabranch.errors import StoreError
from anabranch.mcp import ServerOptions, completed_by
from anabranch.stores import open_stores

if TYPE_CHECKING:
    from anabranch.cli._targets import AnyServer
    from anabranch.tree import TreeStore


class MadeServer(NamedTuple):
    """A server, and what belongs to it.

    Attributes:
        server: the server.
        unused: the options that the targets' own servers have set themselves.
        around: is to be entered while the server runs: its memory learns meanwhile, its branches are
            closed in time, and its engine is closed at its end.
        note: a further line for the user.
    """

    server: AnyServer
    unused: set[str]
    around: AbstractAsyncContextManager[None]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ServerRecipe:
    """The parts of a server, in a form that can be passed to another process."""

    targets: tuple[str, ...]
    model: str | None
    keys: tuple[str, ...] = field(repr=False)
    persistence: Persistence
    name: str | None = None
    asking: Asking = CLIENTS_ONLY
    limits: Limits = UNLIMITED
    folding: bool = False
    memory: bool = False
    shared_memory: str | None = None

    def make_server(self) -> MadeServer:
        """Return it."""
        sampler = open_sampler(self.model)
        try:
            options = server_options(self.keys, sampler, self.persistence, self.asking, self.limits)
        except ValueError as error:
            raise UsageError(str(error)) from error
        url = self.persistence.store
        store: str | TreeStore | None = url
        if url and (self.memory or self.folding):  # beside the calls, over the same connections
            options, store = _beside_calls(options, url)
        with completed_by(options) as unused:
            found = load(self.targets)
        jobs = self._add_agent_tools(found, store, sampler, options.engine)
        if (found.servers or found.fastmcp) and self.name is not None:
            unused.add("name")
        server: AnyServer = (
            assemble_fastmcp(found, options)
            if found.fastmcp
            else assemble(found, options, self.name or name_of(self.targets) or "anabranch")
        )
        given = sampler or store or self.limits != UNLIMITED
        note = foreign(found) if given else ""
        return MadeServer(server, unused, _closing(options.engine, *jobs), note)

    def _add_agent_tools(
        self,
        found: Found,
        store: str | TreeStore | None,
        sampler: Sampler | None,
        engine: Engine | None,
    ) -> list[AbstractAsyncContextManager[None]]:
        """Add the tools of ``--folding`` and ``--memory``; return their jobs beside the server."""
        if not (self.folding or self.memory):
            return []
        from anabranch.cli._folding import expiring, open_branches
        from anabranch.cli._memory import learning, open_bank
        from anabranch.folding import folding_tools
        from anabranch.memory import memory_tools

        bank, branches, learner = None, None, sampler if self.memory else None
        if self.memory or store:
            bank = open_bank(store or store_url(None), self.shared_memory)
        if self.folding:
            branches = open_branches(store, bank, learns=learner is not None)
            found.add(*folding_tools(branches))
        if self.memory and bank is not None:
            found.add(*memory_tools(bank))
        return [learning(bank, learner, engine), expiring(branches, engine)]


@dataclass(frozen=True, slots=True)
class WorkerApp:
    """Makes the application of one worker, in the worker's process."""

    recipe: ServerRecipe
    host: str
    access: Access
    probe: str
    """Sealed by the server of the parent process."""
    log_format: LogFormat = "text"
    concurrency: int = CONCURRENCY
    share: int = CONCURRENCY // 2

    def __call__(self) -> ASGIApp:
        """Return the application, which ends with the parent process; or end this process."""
        log_to_stderr(logging.WARNING, self.log_format)
        try:
            server, _, around, _ = self.recipe.make_server()
            self._check(server)
        except CommandError as error:
            sys.stderr.write(printable(f"anabranch: {error}\n"))
            sys.exit(STARTUP_FAILURE)
        except KeyboardInterrupt:  # Ctrl-C reaches every process of a terminal
            sys.exit()
        # A session of the handshake era lives in one process, and its next request may reach
        # another worker, so no sessions are offered.
        app = self.access.app(
            server, self.host, session_ttl=None, concurrency=self.concurrency, share=self.share
        )
        return Lifetime(app, self.recipe.persistence.grace, around=_ending_with_parent(around))

    def _check(self, server: AnyServer) -> None:
        if not opens(server, self.probe):
            raise UsageError(
                f"{server.name!r} seals its questions with keys of its own, which are others in"
                " each worker: a client's answer would be refused. Give it keys"
                " (request_state_security=), or serve it with one worker."
            )


@asynccontextmanager
async def _ending_with_parent(around: AbstractAsyncContextManager[object]) -> AsyncGenerator[None]:
    """Enter ``around``, and stop this process when its parent has died: it would hold the port forever."""

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    async with around:
        yield


def _beside_calls(options: ServerOptions, url: str) -> tuple[ServerOptions, TreeStore]:
    """Return the options with an open store of calls, and a store over the same connections."""
    try:
        calls, trees = open_stores(url)
    except StoreError as error:
        raise UsageError(str(error)) from error
    return replace(options, store=calls), trees


@asynccontextmanager
async def _closing(
    engine: Engine | None, *jobs: AbstractAsyncContextManager[None]
) -> AsyncGenerator[None]:
    """Do the jobs inside the block, and close the engine after it."""
    try:
        async with AsyncExitStack() as running:
            for job in jobs:
                await running.enter_async_context(job)
            yield
    finally:
        if engine is not None:
            await engine.close()


_GIVEN_BY = {
    "keys": KEYS,
    "store": f"--store ({STORE})",
    "sampler": f"--model ({MODEL})",
    "sampler_mode": "--sampler-mode",
    "ask": "--ask-fallback",
    "ask_url": "--ask-url",
    "ttl": "--ttl",
    "grace": "--grace",
    "max_running": "--max-running",
    "name": "--name",
    "code_version": "--code-version (ANABRANCH_CODE_VERSION)",
    "auth": f"--token ({TOKEN})",
}


def not_used(unused: set[str]) -> list[str]:
    """Say which options have no effect, since the target's code has set them itself."""
    if KEYS not in os.environ:  # those in the file are a default
        unused = unused - {"keys"}
    return [
        f"{_GIVEN_BY.get(name, name)} is not used for a server of the target, which has its own"
        f" {name}."
        for name in sorted(unused)
    ]
