"""A worker that Restate calls: it serves the handlers over HTTP, and chooses whose turn it is.

The handlers run in a thread and a loop of their own, since Restate's SDK takes SIGTERM for itself in
the main one. What they bring is done in the loop in which the worker was begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any, NoReturn, TypeAlias

import restate
import uvicorn
from pydantic import TypeAdapter, ValidationError
from restate.retry_policy import InvocationRetryPolicy
from restate.server_types import Receive, RestateAppT, Scope, Send

from anabranch._aio import Clock, run_shielded
from anabranch._durable.engine import Advance, Wake, WorkLimits
from anabranch.engines._advances import Advances
from anabranch.engines._in_process import InProcessEngine
from anabranch.engines._names import encoded
from anabranch.engines._restate_names import ADVANCE, name_of, service_of, tick_of
from anabranch.errors import StoreError

RETAINED = timedelta(hours=1)
"""How long Restate remembers wakes that are done: the same ones again are not done again."""

ABORTED = timedelta(minutes=1)
"""After which Restate takes a call of a handler for lost, and calls again, here or elsewhere.

An advance may take longer: then the next call of the handler waits for the same advance.
"""

RETRIES = InvocationRetryPolicy(
    initial_interval=timedelta(seconds=0.1),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=2),  # until a worker that begins is found
    max_attempts=2**31 - 1,  # by default, Restate would give up some day
)

IDLE = 120
"""Seconds for which an idle connection stays open: longer than Restate would use it again."""

GRACE = 5
"""Seconds that handlers have to answer when all that they wait for has ended."""

_WAKE = TypeAdapter(Wake)

_Key: TypeAlias = tuple[str, str]
"""The call of a wake, and the wake's name among those of its call."""


def delay_of(wake: Wake, clock: Clock) -> float:
    """Return in how many seconds a wake's time comes, 0 if it has come."""
    return max(wake.not_before - clock.now(), 0.0)


class _DeliveredWake:
    """A wake that Restate has brought, until the wakes that follow it are known."""

    def __init__(self, wake: Wake) -> None:
        self.wake = wake
        self.following: asyncio.Future[list[Wake]] = asyncio.get_running_loop().create_future()

    def end(self, following: list[Wake]) -> None:
        if not self.following.done():
            self.following.set_result(following)


class RestateWorker:
    """Advances what Restate brings.

    Args:
        prefix: how the names of its services begin.
        advance: what is done with each wake.
        clock: the time.
    """

    def __init__(self, prefix: str, advance: Advance, clock: Clock) -> None:
        self._prefix = prefix
        self._advance = advance
        self._clock = clock
        self._turns = InProcessEngine(clock)
        self._advances = Advances(clock)
        self._delivered: dict[_Key, _DeliveredWake] = {}
        self._loop = asyncio.get_running_loop()
        self._ends = False

    @property
    def keys(self) -> set[str]:
        """The objects of Restate whose wakes are here."""
        return {encoded(call) for call, _ in self._delivered}

    async def work(self, tools: Mapping[str, str], limits: WorkLimits) -> NoReturn:
        """Advance what is brought, until cancelled; what has not ended then comes again."""
        await self._turns.work(tools, self._in_turn, limits)

    async def bring(self, wake: Wake) -> list[Wake]:
        """Have a wake advanced; return those that follow it.

        When Restate calls a handler again, it waits for what the first call of it waits for.
        """
        if self._ends:
            return [self._again(wake)]
        key = (wake.call, name_of(wake))
        delivered = self._delivered.get(key)
        if delivered is None:
            delivered = self._delivered[key] = _DeliveredWake(wake)
            delivered.following.add_done_callback(lambda _: self._delivered.pop(key))
            # Restate has waited for its time, by a clock that may be ahead of this one.
            await self._turns.wake(replace(wake, turn=name_of(wake), not_before=0.0))
        return await asyncio.shield(delivered.following)

    async def _in_turn(self, wake: Wake) -> None:
        delivered = self._delivered[wake.call, wake.turn]
        try:
            delivered.end(await self._advances.run(delivered.wake, self._advance))
        except asyncio.CancelledError:
            delivered.end([self._again(delivered.wake)])
            raise

    def _again(self, wake: Wake) -> Wake:
        return replace(wake, not_before=self._clock.now())

    # -- the handlers ------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(
        self, listening: socket.socket, services: Collection[str]
    ) -> AsyncGenerator[None]:
        """Serve ``services`` at a socket, inside the block.

        At its end nothing is taken any more, and what is here comes again, elsewhere.
        """
        objects = [self._object(name) for name in sorted(services)]
        config = uvicorn.Config(
            self._app(restate.app([*objects, _ticking(tick_of(self._prefix))])),
            lifespan="off",
            ws="none",
            access_log=False,
            log_config=None,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=GRACE,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listening])), name="restate"
        )
        thread.start()
        try:
            yield
        finally:
            self._ends = True
            for delivered in list(self._delivered.values()):
                delivered.end([self._again(delivered.wake)])
            server.should_exit = True
            await run_shielded(asyncio.to_thread(thread.join))
            listening.close()

    def _app(self, handlers: RestateAppT) -> RestateAppT:
        """Return the application: Restate's, until this worker ends."""

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if self._ends:
                await send(
                    {"type": "http.response.start", "status": 503, "headers": [], "trailers": False}
                )
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await handlers(scope, receive, send)

        return app

    def _object(self, name: str) -> restate.VirtualObject:
        service = restate.VirtualObject(
            name,
            abort_timeout=ABORTED,
            idempotency_retention=RETAINED,
            journal_retention=timedelta(0),
            invocation_retry_policy=RETRIES,
        )

        @service.handler(ADVANCE)
        async def advance(ctx: restate.ObjectContext, wake: dict[str, Any]) -> None:
            bringing = asyncio.run_coroutine_threadsafe(self.bring(_read(wake)), self._loop)
            for each in await asyncio.wrap_future(bringing):
                ctx.generic_send(
                    service_of(self._prefix, each.tool, each.version),
                    ADVANCE,
                    json.dumps(asdict(each)).encode(),
                    key=encoded(each.call),
                    send_delay=timedelta(seconds=delay_of(each, self._clock)),
                    idempotency_key=name_of(each),
                )

        return service


def _ticking(name: str) -> restate.VirtualObject:
    """Return the service of which only the names of its requests matter."""
    service = restate.VirtualObject(name, invocation_retry_policy=RETRIES)

    @service.handler(ADVANCE)
    async def advance(ctx: restate.ObjectContext, turn: dict[str, Any]) -> None:
        del ctx, turn

    return service


def _read(wake: dict[str, Any]) -> Wake:
    try:
        return _WAKE.validate_python(wake)
    except ValidationError as error:
        raise restate.TerminalError("This is no wake.") from error


def listen(where: str) -> socket.socket:
    """Return a socket that listens at ``host:port``; workers of one machine may share a port.

    Raises:
        StoreError: that is no address of this machine, or another program has it.
    """
    host, _, number = where.rpartition(":")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), _port(number), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except (OSError, ValueError):
        raise StoreError(
            f"A worker listens at an address like 127.0.0.1:9080, not {where!r}."
        ) from None
    try:
        if hasattr(socket, "SO_REUSEPORT"):
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        raise StoreError(
            f"No worker can listen at {where}: {os.strerror(error.errno or 0)}."
        ) from error
    return listening


def _port(number: str) -> int:
    port = int(number)
    if 0 <= port < 1 << 16:
        return port
    raise ValueError(f"There is no port {port}.")
