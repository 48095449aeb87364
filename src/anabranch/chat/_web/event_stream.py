"""Server-sent events: the events of a thread as an HTTP response."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from anabranch.chat._web.thread_log import ThreadLog

__all__ = ["KEEP_ALIVE", "event_stream"]

KEEP_ALIVE = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy ends the connection."""

RUN_ENDS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')


def event_stream(
    log: ThreadLog, after: int | str, *, one_run: bool = False, keep_alive: float = KEEP_ALIVE
) -> StreamingResponse:
    """Return the events of ``log`` after a number or a position.

    Args:
        log: the thread's log.
        after: where to begin.
        one_run: whether to end with the first run that ends.
        keep_alive: seconds between comments while nothing happens.
    """
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    body = _body(log, after, keep_alive, one_run=one_run)
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)


async def _body(
    log: ThreadLog, after: int | str, keep_alive: float, *, one_run: bool
) -> AsyncIterator[bytes]:
    async for event in log.follow(after, keep_alive):
        if event is None:
            yield b": nothing new\n\n"
            continue
        yield b"id: %s\ndata: %s\n\n" % (event.position.encode(), event.data)
        if one_run and event.data.startswith(RUN_ENDS):
            return
