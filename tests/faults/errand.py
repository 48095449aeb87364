"""The tool that is disturbed in a chat: five steps, two questions, undos; and the processes of that chat.

Some serve persons alone, and others take the runs, as ``anabranch web`` and ``anabranch worker`` do.
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

That is longer than clocks are apart and all disturbances take one after the other, so each person is in
time. An answer that has waited for longer for its worker is acted upon all the same.
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
    """The main function of a process, which takes runs if its settings say how many."""
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
