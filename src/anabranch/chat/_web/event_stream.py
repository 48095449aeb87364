"""Sends the events of a thread to a client, as server-sent events, one batch in memory at most."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from itertools import count

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch._aio import cancel_and_wait, server_stops
from anabranch._durable import EventId
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.errors import StoreError

KEEP_ALIVE = 15.0
"""Seconds from one look for silence to the next: a comment follows a silence of 15 to 30 seconds.

So no proxy ends the connection.
"""

logger: logging.Logger = logging.getLogger("anabranch.chat.web")


class EventStream(Response):
    """Sends the events of ``log`` as they happen, starting after ``after``.

    The stream ends with the server, which would otherwise cancel it, and at ``stopping``. The stream
    also ends if the process of the run dies, which no event reports: the reader then connects
    again, and reads the tree. With ``one_run``, the stream ends with the first run. The end closes
    the caller's ``place``.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        log: ThreadLog,
        after: int | EventId,
        is_running: Callable[[], Awaitable[bool]],
        stopping: asyncio.Event | None = None,
        *,
        one_run: bool = False,
        place: ExitStack | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._log = log
        self._after = after
        self._is_running = is_running
        self._stopping = stopping
        self._one_run = one_run
        self._place = place or ExitStack()
        self._is_quiet = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._place:
            await self._respond(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        parts = (self._send_events(send), self._send_comments(send), _until_left(receive))
        stops = (each.wait() for each in (self._stopping, server_stops(scope)) if each is not None)
        tasks = [asyncio.ensure_future(part) for part in (*parts, *stops)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(tasks)
        for task in done:
            task.result()
        if tasks[2] not in done:
            await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, send: Send) -> None:
        try:
            async with aclosing(self._log.follow(self._after)) as following:
                async for first, events, marks in following:
                    end = _until_end(events) if self._one_run else None
                    shown = zip(count(first), marks, events[:end], strict=False)
                    chunk = b"".join(b"id: %d-%x\ndata: %s\n\n" % each for each in shown)
                    self._is_quiet = False
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    if end is not None:
                        return
        except StoreError as error:  # the reader reconnects for the rest
            logger.warning("an event stream has ended: %s", error)

    async def _send_comments(self, send: Send) -> None:
        while True:
            self._is_quiet = True
            was_running = self._one_run or await self._is_running()
            await asyncio.sleep(KEEP_ALIVE)
            if self._is_quiet:
                if was_running and not await self._is_running():
                    return
                comment = b": nothing new\n\n"
                await send({"type": "http.response.body", "body": comment, "more_body": True})


def _until_end(events: Sequence[bytes]) -> int | None:
    ends = (place for place, event in enumerate(events, 1) if event.startswith(RUN_ENDS))
    return next(ends, None)


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
