"""The event loops on which the tests run rounds."""

import asyncio
import sys
from typing import Any


def eager_loop() -> asyncio.AbstractEventLoop:
    """Return a loop whose tasks start before ``create_task`` returns."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory"))  # noqa: B009 - since Python 3.12
    return loop


LOOPS: dict[str, dict[str, Any]] = {"asyncio": {"debug": True}}
if sys.platform != "win32":
    LOOPS["uvloop"] = {"use_uvloop": True}
if sys.version_info >= (3, 12):
    LOOPS["eager"] = {"loop_factory": eager_loop}
