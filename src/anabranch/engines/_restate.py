"""The engine on Restate: one keyed object for each call, which gives it one wake at a time.

A wake is a one-way call of the object's handler, under a name that follows from the wake: the same
wake is the same call. A handler makes one advance, and sends what follows. The body of a call is never
a handler, and a step of a call never one of Restate's: what happens in a call, the journal says.

Restate calls workers, they do not ask it: it calls the one address under which they are registered.
Behind it are all workers with the same tools, by a load balancer or, on one machine, by sharing the
port. Of several addresses, the one that was registered last has all calls; when it does not answer any
more, another worker registers its own again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import NoReturn

from anabranch._aio import Clock, SystemClock, cancel_and_wait, pause
from anabranch._durable.engine import Advance, Backlog, Wake, WorkLimits
from anabranch.engines._advances import run_job
from anabranch.engines._names import encoded
from anabranch.engines._restate_api import RestateApi, checked_url
from anabranch.engines._restate_names import name_of, service_of, tick_of
from anabranch.engines._restate_registration import Registration
from anabranch.engines._restate_worker import RestateWorker, delay_of, listen
from anabranch.errors import StoreError

logger: logging.Logger = logging.getLogger("anabranch.engines")

SEND_AGAIN = 1.0
"""Seconds until wakes are sent again for which there was no worker."""

HELD_AT_MOST = 10_000
"""Wakes that wait here for a first worker."""

TAKEN = {"running"}
"""Restate's states of a wake that a worker has."""


class RestateEngine:
    """An engine for any number of workers on one cluster of Restate.

    A call's wakes come one at a time, over all workers. Versions have services of their own. What
    Restate does not have: a limit over all workers of how many calls of a share are advanced at the
    same time. It is refused unless this worker is the only one.

    Until a first worker has registered for a tool and version, Restate refuses its wakes. They wait in
    this process, and are lost with it.

    Args:
        ingress: the URL of Restate's ingress.
        admin: the URL of its admin API; by default, port 9070 of the same host.
        listen: where a worker in this process listens; any port, for port 0.
        address: the URL under which Restate reaches it; by default, that of ``listen``.
        prefix: how the names of Restate's services begin: letters and digits. Applications that share
            a cluster have prefixes of their own.
        alone: whether no other process works with this prefix.
        clock: the time; by default, the system's.

    Raises:
        StoreError: a URL or the prefix is wrong.
    """

    def __init__(
        self,
        ingress: str,
        *,
        admin: str | None = None,
        listen: str = "127.0.0.1:9080",
        address: str | None = None,
        prefix: str = "anabranch",
        alone: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if re.fullmatch("[A-Za-z][A-Za-z0-9]*", prefix) is None:
            raise StoreError(f"A prefix is a letter, then letters and digits, not {prefix!r}.")
        self._api = RestateApi(ingress, admin)
        self._listen = listen
        self._address = None if address is None else checked_url(address)
        self._prefix = prefix
        self._is_alone = alone
        self._clock = clock or SystemClock()
        self._held: dict[tuple[str, str], Wake] = {}
        self._sending: asyncio.Task[None] | None = None

    async def wake(self, wake: Wake, *, within: object | None = None) -> None:
        """See :meth:`Engine.wake`; ``within`` is ignored."""
        del within
        if not await self._sent(wake):
            self._hold(wake)

    async def backlog(self) -> Backlog:
        """See :meth:`Engine.backlog`; what waits for its turn in a worker counts as running."""
        counts = await self._api.select(
            "status, count(*) AS number",
            "sys_invocation",
            f"{self._ours()} AND status <> 'completed' GROUP BY status",
        )
        taken = sum(each["number"] for each in counts if each["status"] in TAKEN)
        return Backlog(len(self._held) + sum(each["number"] for each in counts) - taken, taken)

    async def work(
        self, tools: Mapping[str, str], advance: Advance, limits: WorkLimits
    ) -> NoReturn:
        """See :meth:`Engine.work`.

        Raises:
            StoreError: Restate cannot be reached, or the address not be listened at; or there are
                limits that Restate does not have.
        """
        self._api.check_open()
        if not self._is_alone and limits.per_share is not None:
            raise StoreError(
                "Restate has no limit for a share over all workers: leave it out, or make the only"
                " worker with RestateEngine(…, alone=True)."
            )
        services = [
            service_of(self._prefix, tool, version)
            for tool, own in tools.items()
            for version in sorted({"", own})
        ]
        listening = listen(self._listen)
        host, port, *_ = listening.getsockname()
        address = self._address or f"http://{f'[{host}]' if ':' in host else host}:{port}"
        worker = RestateWorker(self._prefix, advance, self._clock)
        served = [*services, tick_of(self._prefix)]
        registration = Registration(self._api, address, served, self._clock)
        async with worker.serving(listening, services):
            await registration.begin()
            await self._send_held()
            await registration.wait_for_arrivals(worker)
            staying = asyncio.ensure_future(registration.stay())
            try:
                await worker.work(tools, limits)
            finally:
                await cancel_and_wait([staying])

    async def every(
        self, name: str, seconds: float, job: Callable[[], Awaitable[object]]
    ) -> NoReturn:
        """See :meth:`Engine.every`; the first that asks in a span of so many seconds runs it.

        Until a first worker has registered, all that ask do: too often is better than never.
        """
        self._api.check_open()
        while True:
            await run_job(name, lambda: self._in_turn(name, seconds, job))
            await pause(self._clock, seconds)

    async def close(self) -> None:
        """See :meth:`Engine.close`."""
        if self._sending is not None:
            await cancel_and_wait([self._sending])
        await self._api.close()

    # -- wakes -------------------------------------------------------------------------------

    async def _sent(self, wake: Wake) -> bool:
        """Send a wake; false if there is no worker for it yet."""
        sent = await self._api.send(
            service_of(self._prefix, wake.tool, wake.version),
            encoded(wake.call),
            name_of(wake),
            asdict(wake),
            delay_of(wake, self._clock),
        )
        return sent != "unserved"

    def _hold(self, wake: Wake) -> None:
        """Send a wake when there is a worker for it."""
        key = (wake.call, wake.turn)
        if len(self._held) >= HELD_AT_MOST and key not in self._held:
            raise StoreError(f"Restate knows no worker for {wake.tool!r}: start one.")
        held = self._held.get(key)
        if held is None or wake.not_before < held.not_before:
            self._held[key] = wake
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_all_held())

    async def _send_all_held(self) -> None:
        while self._held:
            await pause(self._clock, SEND_AGAIN)
            await run_job("wakes for which there was no worker", self._send_held)

    async def _send_held(self) -> None:
        for key, wake in list(self._held.items()):
            if self._held.get(key) is wake and await self._sent(wake):
                self._held.pop(key, None)

    async def _in_turn(
        self, name: str, seconds: float, job: Callable[[], Awaitable[object]]
    ) -> None:
        span = int(self._clock.now() // seconds)
        sent = await self._api.send(tick_of(self._prefix), encoded(name), str(span), {})
        if sent != "repeated":
            await job()

    def _ours(self) -> str:
        """Return the condition that an invocation is a wake of this engine."""
        return f"starts_with(target_service_name, '{self._prefix}_')"
