"""The options of a server, for ``create_server``, ``install`` and the FastMCP functions."""

from __future__ import annotations

import math
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias, TypedDict, get_args
from urllib.parse import urlsplit

from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE

from anabranch._aio import Clock, SystemClock
from anabranch._asking import Sampler
from anabranch._budget import Limits
from anabranch._durable import MAX_STATE, RETAIN, SAGAS, CallStore, Durability, Sealer
from anabranch._engine import STEP_THREADS
from anabranch.mcp._defaults import GRACE, HEARTBEAT, TTL, Ask, SamplerMode
from anabranch.stores import open_store
from anabranch.tool import checked_version, wrong_kind

Store: TypeAlias = str | CallStore | Durability
"""The URL of a store (``anabranch.stores``), a store, or a store with a policy."""

Keys: TypeAlias = Sequence[bytes | str]
"""Secrets of at least 32 bytes: the first seals, all can open."""

EXPIRE_AFTER = 1.5
"""With a store, the expiry of a call as a multiple of ``ttl``; the margin covers differing clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of a server's tools: store, keys, sampler, limits and others.

    Attributes:
        keys: secrets that seal the state between rounds and the tokens of sagas. By default, the
            process makes a random key, so open questions do not survive the process.
        ttl: seconds that a user has to answer a round's questions; 1.5 times as many with a store.
        store: the store of the calls (a URL as for ``anabranch.stores.open_store``, a store, or a
            ``Durability``). With a store, each effect happens once, however often clients repeat a
            request. Without a store, the client carries all state.
        sampler: the server's model; by default, samples go to the client's model.
        sampler_mode: ``own`` asks the server's model for every sample, ``prefer-client`` only if
            the client cannot sample, or refuses.
        limits: limits on every call, in addition to each tool's.
        patience: seconds that a round with an open question waits for work outside of steps (2 by
            default), unless the tool's own ``patience`` is lower.
        clock: the time for calls, their leases and tokens; the system's by default.
        continue_calls: with a store, whether the server offers the tool ``continue_call``, by which
            a client's model continues a call that needs more rounds than the client allows.
        max_state: maximum uncompressed bytes of all answers of one call.
        max_request: maximum bytes of a request over HTTP: the transport's
            ``max_request_body_size``, 4 MiB by default. Without a store, a call whose state is too
            large for such a request ends in an error.
        step_threads: maximum plain (not ``async``) steps of one call at the same time, each in a
            thread. Calls do not share threads.
        sagas: whether the server offers ``tools/callSaga`` and ``tools/resumeSaga``.
        grace: seconds that a stopping server takes to end running calls and run their undos.
        max_running: maximum calls that a process runs at the same time, including live calls that
            wait for their client; a call between two requests does not count. The server refuses a
            further call with a time to retry, but never an answer. Default: no limit.
        auth, token_verifier: authentication over HTTP, as for ``MCPServer``; not for
            :func:`install`, whose server authenticates already.
        ask: ``fallback`` also lets clients that cannot show questions ask their users: the tool's
            result lists the questions, and the client's model calls ``answer_questions`` with the
            answers.
        heartbeat: seconds between progress notifications while the user has an open question, for
            clients before 2026-07-28 that sent a progress token; ``None`` sends no notifications.
        code_version: the version of the tools' code. With a store, a call continues only with the
            version that started it, or with code that repeats its recorded steps. By default, a
            digest of the files that define the tools.
        ask_url: with ``fallback`` and a store, the HTTP address at which users reach this server.
            The result then also links to pages with the forms, below ``/ask/`` at this address.
    """

    keys: Keys | None = field(default=None, repr=False)
    ttl: float = TTL
    store: Store | None = field(default=None, repr=False)
    sampler: Sampler | None = None
    sampler_mode: SamplerMode = "own"
    limits: Limits | None = None
    patience: float | None = None
    clock: Clock | None = None
    continue_calls: bool = True
    max_state: int = MAX_STATE
    max_request: int = DEFAULT_MAX_REQUEST_BODY_SIZE
    step_threads: int = STEP_THREADS
    sagas: bool = True
    grace: float = GRACE
    auth: AuthSettings | None = None
    token_verifier: TokenVerifier | None = field(default=None, repr=False)
    ask: Ask = "client"
    heartbeat: float | None = HEARTBEAT
    ask_url: str | None = None
    max_running: int | None = None
    code_version: str | None = None

    def __post_init__(self) -> None:
        if self.code_version is not None:
            checked_version(self.code_version)
        self._check_kinds()
        if self.step_threads < 1:
            raise ValueError(f"step_threads must be 1 or more, got {self.step_threads}.")
        if self.max_running is not None and self.max_running < 1:
            raise ValueError(f"max_running must be 1 or more, or None, got {self.max_running}.")
        if self.sampler_mode not in get_args(SamplerMode):
            raise ValueError(
                f"sampler_mode must be 'own' or 'prefer-client', got {self.sampler_mode!r}."
            )
        if self.ask not in get_args(Ask):
            raise ValueError(f"ask must be 'client' or 'fallback', got {self.ask!r}.")
        if self.heartbeat is not None and not 0 < self.heartbeat < math.inf:
            raise ValueError(
                f"heartbeat must be a positive number of seconds, or None, got {self.heartbeat}."
            )
        if self.ask_url is not None:
            self._check_ask_url(self.ask_url)

    def _check_kinds(self) -> None:
        for name, seconds in {"ttl": self.ttl, "grace": self.grace}.items():
            if not isinstance(seconds, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] - for callers without types
                raise wrong_kind(f"{name}=", "a number of seconds", seconds)

    def _check_ask_url(self, url: str) -> None:
        parts = urlsplit(url)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.netloc
            or parts.query
            or parts.fragment
        ):
            raise ValueError(f"ask_url must be like https://tools.example.org, got {url!r}.")
        if self.ask != "fallback" or self.store is None:
            raise ValueError(
                "ask_url= needs ask='fallback' and a store=, which holds users' answers until"
                " their call continues."
            )


class ToolKeywords(TypedDict, total=False):
    """The keyword arguments of :func:`as_fastmcp_tool`: fields of :class:`ServerOptions`."""

    ttl: float
    store: Store | None
    sampler: Sampler | None
    sampler_mode: SamplerMode
    limits: Limits | None
    patience: float | None
    clock: Clock | None
    max_state: int
    max_request: int
    step_threads: int
    heartbeat: float | None
    code_version: str | None


class ServerKeywords(ToolKeywords, total=False):
    """The keyword arguments of :func:`create_server`: the fields of :class:`ServerOptions`."""

    keys: Keys | None
    continue_calls: bool
    sagas: bool
    grace: float
    auth: AuthSettings | None
    token_verifier: TokenVerifier | None
    ask: Ask
    ask_url: str | None
    max_running: int | None


_COMMAND: ContextVar[tuple[ServerOptions, set[str]] | None] = ContextVar("command", default=None)
"""The options of the command that loads servers, and the fields that code has set otherwise."""


@contextmanager
def completed_by(options: ServerOptions) -> Generator[set[str]]:
    """Fill in the options that code leaves unset when it makes servers inside the block.

    Yields the names of the fields that code has set to another value.
    """
    unused: set[str] = set()
    token = _COMMAND.set((options, unused))
    try:
        yield unused
    finally:
        _COMMAND.reset(token)


def options_for(
    host: str, options: ServerOptions | None, keywords: ServerKeywords | ToolKeywords
) -> ServerOptions:
    """Return the options of tools for an existing server, which has its own authentication."""
    given = options_of(options, keywords)
    if given.auth or given.token_verifier:
        raise ValueError(f"auth= and token_verifier= belong to the server: pass both to {host}.")
    return given


def options_of(
    options: ServerOptions | None, keywords: ToolKeywords | ServerKeywords
) -> ServerOptions:
    given = replace(options or ServerOptions(), **keywords)
    if (command := _COMMAND.get()) is None:
        return given
    of_command, unused = command
    left_open: dict[str, Any] = {}
    for each in fields(ServerOptions):
        own, wanted = getattr(given, each.name), getattr(of_command, each.name)
        if isinstance(own, Limits) and isinstance(wanted, Limits):
            left_open[each.name] = own.narrowed(wanted)
        elif own == each.default:
            left_open[each.name] = wanted
        elif wanted not in (own, each.default):
            unused.add(each.name)
    return replace(given, **left_open)


def durability_of(options: ServerOptions) -> Durability | None:
    store = options.store
    if store is None or isinstance(store, Durability):
        return store
    opened = open_store(store) if isinstance(store, str) else store
    return Durability(opened, expire_after=EXPIRE_AFTER * options.ttl)


def token_ttl(options: ServerOptions) -> float:
    """Return the seconds for which a token is valid.

    With a store, a token opens for as long as the store knows its call: the client of an expired call
    gets the error for an expired call.
    """
    if options.store is None:
        return options.ttl
    used = options.store if isinstance(options.store, Durability) else None
    waits = EXPIRE_AFTER * options.ttl if used is None else used.expire_after
    return max(options.ttl, waits + (RETAIN if used is None else used.retain))


def sealer_of(options: ServerOptions, audience: str, purpose: str = SAGAS) -> Sealer:
    keys: Keys = options.keys or [secrets.token_bytes(32)]
    clock = options.clock or SystemClock()
    return Sealer(keys, audience=audience, ttl=token_ttl(options), clock=clock, purpose=purpose)
