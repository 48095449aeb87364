"""Runs calls as a server does, for a client that may repeat its requests, without a transport.

A ledger records the idempotency key of each effect. A *desk* plays one call, request by request,
with any number of servers over one store. Questions and answers have the form of the modern edge,
so that the tests compare the replies that this edge sends.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch import AnabranchError, Sampler
from anabranch._aio import Timer
from anabranch._asking import Host
from anabranch._budget import Limits
from anabranch._durable import CallService, CallStore, Durability, Job, Reaper
from anabranch._engine import Answer, Ask, Finished, Journal, Notice, current_idempotency_key
from anabranch.testing import ManualClock
from anabranch.tool import Runtime, Tool
from tests.durable.stores import Cut
from tests.mcp.modern_rounds import run_round
from tests.patience import PATIENCE

UNAVAILABLE = "cannot reach its store"
User = Callable[[str, Any], BaseModel]


class Number(BaseModel):
    n: int


class Ledger(list[tuple[str, str]]):
    """Effects and undos in their order, each with its idempotency key."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str | None] = []
        self._noting = threading.Lock()

    def append(self, effect: tuple[str, str]) -> None:
        with self._noting:
            self._keys.append(current_idempotency_key.get())
            super().append(effect)

    def clear(self) -> None:
        self._keys.clear()
        super().clear()

    def by_key(self) -> dict[str, tuple[str, str]]:
        """Return the effect or undo of each key; a key must not have two."""
        known: dict[str, tuple[str, str]] = {}
        for key, effect in zip(self._keys, self, strict=True):
            if key is not None:
                assert known.setdefault(key, effect) == effect, f"{key} is two effects"
        return known


class OneCall:
    """Gives every call the same id, so that a repeated first request names the same call.

    No real client can do that, since it learns the id from the first reply. Here the same id makes
    round 0 repeatable like the other rounds.
    """

    def __init__(self, name: str = "call_1") -> None:
        self.name = name

    def call_id(self) -> str:
        return self.name

    def secret(self) -> str:
        """Return a constant, so that a disturbed run can be compared with an undisturbed one."""
        return "not a secret"


class Stopped:
    """The clock of a process that dies with its store: all its timers end immediately."""

    def __init__(self, store: Cut, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def now(self) -> float:
        return self.clock.now() + (1e9 if self.store.is_cut else 0.0)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        if self.store.is_cut:
            return asyncio.get_running_loop().call_soon(callback)
        return self.clock.call_at(when, callback)


@dataclass
class Desk:
    """Plays one call of ``tool``.

    Attributes:
        tool, arguments: the tool, and the arguments of its call.
        policy: makes the settings for durable calls from a store.
        user: answers a question, by its id and request.
        notices: notices that the client received, over all requests.
    """

    tool: Tool[Any]
    user: User
    policy: Callable[[CallStore], Durability] = Durability
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    clock: ManualClock = field(default_factory=ManualClock)
    ids: OneCall = field(default_factory=OneCall)
    sampler: Sampler | None = None
    host: Host | None = None
    notices: list[str] = field(default_factory=list[str])
    limits: Limits = field(default_factory=Limits)
    version: str = ""

    def service(self, store: CallStore | None) -> CallService:
        """Return a server process over ``store``."""
        clock = Stopped(store, self.clock) if isinstance(store, Cut) else self.clock
        runtime = Runtime(clock=clock, ids=self.ids, limits=self.limits, version=self.version)
        return CallService(runtime, None if store is None else self.policy(store))

    async def request(
        self,
        service: CallService,
        state: str | None = None,
        responses: Mapping[str, BaseModel] | None = None,
    ) -> Finished[Any] | InputRequiredResult:
        """Send one ``tools/call`` and return its result; raise the call's error."""
        journal = service.new() if state is None else await service.stored.load(state)
        job = self.job(journal)
        return await run_round(service, job, journal, responses)

    async def send(
        self, store: CallStore | None, reply: InputRequiredResult | None = None, n: int = 0
    ) -> Finished[Any] | InputRequiredResult:
        """Send the first request, or the answers ``n`` to a reply, to a new server over ``store``."""
        if reply is None:
            return await self.request(self.service(store))
        return await self.request(self.service(store), reply.request_state, numbered(reply, n))

    def job(self, journal: Journal) -> Job:
        async def sink(notice: Notice) -> None:
            self.notices.append(notice.message)

        host = self.host or Host(sampler=self.sampler)
        return Job(self.tool, self.tool.validate(self.arguments), host, sink)

    def answer(self, reply: InputRequiredResult) -> dict[str, BaseModel]:
        """Return the answers of the user and the model to the questions of ``reply``."""
        asked: Mapping[str, Any] = reply.input_requests or {}
        return {step_id: self.user(step_id, request) for step_id, request in asked.items()}

    async def play(self, *stores: CallStore | None) -> tuple[str, Any]:
        """Play the call to its end; if a server fails, repeat the request on the next store's server.

        The last store serves all remaining requests.
        """
        with anyio.fail_after(PATIENCE):
            return await self._play(stores)

    async def _play(self, stores: Sequence[CallStore | None]) -> tuple[str, Any]:
        left = list(stores)
        service = self.service(left.pop(0))
        state: str | None = None
        responses: dict[str, BaseModel] = {}
        while True:
            try:
                outcome = await self.request(service, state, responses)
            except AnabranchError as error:
                if UNAVAILABLE not in str(error) or not left:
                    return "error", str(error)
                service = self.service(left.pop(0))
            except (ValueError, RuntimeError):
                return "bug", None
            except asyncio.CancelledError:
                if not left:
                    raise
                service = self.service(left.pop(0))
            else:
                if isinstance(outcome, Finished):
                    return "value", json.loads(json.dumps(outcome.value))
                state, responses = outcome.request_state, self.answer(outcome)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


def always(**content: Any) -> User:
    return lambda _id, _request: accept(**content)


def asking(outcome: object) -> InputRequiredResult:
    assert isinstance(outcome, InputRequiredResult)
    return outcome


def numbered(reply: InputRequiredResult, n: int) -> dict[str, Any]:
    return {step_id: accept(n=n) for step_id in reply.input_requests or {}}


def patiently(store: CallStore) -> Durability:
    """Settings with leases that last however fast the clock runs."""
    return Durability(store, lease=100_000_000)


def reaper(desk: Desk, store: CallStore) -> Reaper:
    """Return a reaper that waits for compensations however fast the clock runs."""
    return Reaper(desk.service(store), {desk.tool.name: desk.tool}, patience=100_000_000)


class Live:
    """A user who answers a live call immediately, but the question ``last`` only once ``may`` is set."""

    def __init__(self, last: str) -> None:
        self.last = last
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def __call__(self, ask: Ask) -> Answer:
        if getattr(ask.request, "message", "") == self.last:
            self.asked.set()
            await self.may.wait()
        return Answer({"action": "accept", "content": {"n": 1}})


def live(
    desk: Desk, store: CallStore, user: Live, journal: Journal | None = None
) -> asyncio.Task[object]:
    service = desk.service(store)
    begun = service.new() if journal is None else journal
    return asyncio.ensure_future(
        service.run_live(desk.job(begun), begun, lambda call: call.drive(user))
    )


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
