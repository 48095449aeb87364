"""The tool and the processes of the chat that the fault tests disturb: five steps, two questions, undos.

Some processes only serve users, and others take the runs, as ``anabranch web`` and ``anabranch
worker`` do.
"""

import socket
from pathlib import Path
from typing import cast

import anyio
import uvicorn

from anabranch import BranchContext, ToolError, tool
from anabranch.chat import make_chat_app
from anabranch.mcp import Durability
from anabranch.stores import CallStore, open_stores
from anabranch.testing import MockModel
from tests.faults.journey import (
    END,
    GO,
    HERE,
    LEASE,
    LEDGERS,
    Deadly,
    Ending,
    FastClock,
    Settings,
    ask,
    engine_of,
    leg,
)
from tests.faults.ledger import Ledger

STEPS = 5

OPEN_FOR = 90.0
"""Seconds of the machine's clock for which a question is open.

This time is longer than the clock differences and all disturbances together, so each user answers
in time. If the answer then waits longer for its worker, it still takes effect.
"""


@tool(elicits=[GO])
async def errand(ctx: BranchContext, run: str, ending: Ending) -> str:
    """Return the idempotency keys of five steps, or fail at the end."""
    keys = [await leg(ctx, run, number) for number in (1, 2)]
    await ask(ctx, "On?")
    keys += [await leg(ctx, run, number) for number in (3, 4)]
    await ask(ctx, "Still on?")
    keys.append(await leg(ctx, run, STEPS))
    if ending == "failure":
        raise ToolError(END)
    return " ".join(keys)


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run a process, which takes runs if its settings have a concurrency."""
    ledger = LEDGERS[HERE] = Ledger(Path(settings.folder))
    clock = FastClock(settings.epoch, settings.speed, settings.ahead)
    calls, trees = open_stores(settings.url)
    app = make_chat_app(
        trees,
        MockModel(lambda _: "unused"),
        [errand],
        calls=Durability(
            cast("CallStore", Deadly(calls, ledger)),
            lease=LEASE,
            expire_after=OPEN_FOR * settings.speed,
        ),
        clock=clock,
        engine=engine_of(settings, clock),
        concurrency=settings.concurrency,
    )
    config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=1)
    anyio.run(uvicorn.Server(config).serve, [listener])
