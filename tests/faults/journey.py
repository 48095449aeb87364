"""The tool that the fault tests disturb: twenty steps, two questions, two branches with samples, undos.

The module has the tool, its effects, and the server of one worker.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, ToolError, tool
from anabranch._aio import Timer
from anabranch.engines import DBOSEngine, Engine
from anabranch.mcp import Durability, create_server
from anabranch.stores import CallStore, open_store
from tests.faults.ledger import Ledger

LEASE = 15.0
"""Seconds of the workers' clock until another worker may take a call from one that is out of reach."""

STEPS = 20
SIDES = ((5, 6, 7, 8), (9, 10, 11, 12))
"""The steps of the two branches; each branch samples after its second step."""

BEFORE_QUESTION = ({*range(1, 5)}, {*range(1, 7), 9, 10}, {*range(1, 17)})
"""The steps that are done when the first, second and third question is open."""

ANYONE = "anyone"
"""Stands for a run if any run may reach the point."""

Ending = Literal["success", "failure"]
END = "The journey ends here."


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a worker.

    Attributes:
        folder: the ledger's folder.
        url: the store's URL.
        epoch, speed: parameters of the workers' clock.
        ahead: seconds by which the clock of this worker is ahead of the others' clocks.
        on_engine: whether DBOS, in the store's Postgres, wakes the workers.
        concurrency: maximum number of chat runs that this worker takes at the same time.
    """

    folder: str
    url: str
    epoch: float
    speed: float
    ahead: float = 0.0
    on_engine: bool = False
    concurrency: int | None = None


class FastClock:
    """The machine's clock, accelerated by ``speed``; equal in all processes except for ``ahead``."""

    def __init__(self, epoch: float, speed: float, ahead: float = 0.0) -> None:
        self._epoch = epoch
        self._speed = speed
        self._ahead = ahead

    def now(self) -> float:
        return self._epoch + (time.time() - self._epoch) * self._speed + self._ahead

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        delay = max(0.0, when - self.now()) / self._speed
        return asyncio.get_running_loop().call_later(delay, callback)


class Go(BaseModel):
    on: bool


class Mark(BaseModel):
    """The value of a step, which contains all that its undo needs."""

    run: str
    number: int
    key: str


GO = Elicitation("go", Go)
LEDGERS: dict[str, Ledger] = {}
HERE = "here"


def has_undo(number: int) -> bool:
    return number % 5 != 0


def happen(kind: Literal["step", "undo"], mark: Mark) -> None:
    ledger = LEDGERS[HERE]
    ledger.die_at(mark.run, f"before-{kind}-{mark.number}")
    ledger.write(kind, mark.run, mark.number, mark.key)
    ledger.die_at(mark.run, f"gap-{kind}-{mark.number}")


async def act(mark: Mark) -> Mark:
    happen("step", mark)
    return mark


def act_in_a_thread(mark: Mark) -> Mark:
    happen("step", mark)
    return mark


async def take_back(mark: Mark) -> None:
    happen("undo", mark)


async def leg(ctx: BranchContext, run: str, number: int) -> str:
    """Run one step, with a place before and after it at which the process may die."""
    mark = Mark(run=run, number=number, key=ctx.idempotency_key)
    undo = take_back if has_undo(number) else None
    if number % 2:
        done = await ctx.step(act, mark, undo=undo)
    else:
        done = await ctx.step(act_in_a_thread, mark, undo=undo)
    LEDGERS[HERE].write("seen", run, number, done.key)
    LEDGERS[HERE].die_at(run, f"after-step-{number}")
    return done.key


async def side(ctx: BranchContext, run: str, numbers: list[int]) -> list[str]:
    keys = [await leg(ctx, run, number) for number in numbers[:2]]
    await ctx.sample(f"On from {numbers[1]}?")
    return keys + [await leg(ctx, run, number) for number in numbers[2:]]


async def ask(ctx: BranchContext, question: str) -> None:
    answer = await ctx.elicit(GO, question)
    if not (isinstance(answer, Accepted) and answer.content.on):
        raise ToolError("No one wants to go on.")


@tool(elicits=[GO])
async def journey(ctx: BranchContext, run: str, ending: Ending) -> str:
    """Return the idempotency keys of twenty steps, or fail at the end."""
    keys = [await leg(ctx, run, number) for number in range(1, 5)]
    await ask(ctx, "On?")
    left, right = await ctx.gather(
        ctx.branch(side, run, list(SIDES[0])), ctx.branch(side, run, list(SIDES[1]))
    )
    keys += [*left, *right, *[await leg(ctx, run, number) for number in range(13, 17)]]
    await ask(ctx, "Still on?")
    keys += [await leg(ctx, run, number) for number in range(17, STEPS + 1)]
    if ending == "failure":
        raise ToolError(END)
    return " ".join(keys)


class Deadly:
    """A store that may kill the process before or after an operation.

    The store writes to the ledger which undos are recorded, since the tool never sees their values.
    """

    def __init__(self, store: CallStore, ledger: Ledger) -> None:
        self.processes = store.processes
        self._store = store
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def operate(*arguments: Any, **options: Any) -> Any:
            self._ledger.die_at(ANYONE, f"before-{name}")
            outcome = await method(*arguments, **options)
            if name == "undone":
                call, step_id = arguments
                self._ledger.write("undone", "", 0, f"{call}:{step_id}")
            self._ledger.die_at(ANYONE, f"after-{name}")
            return outcome

        return operate


def engine_of(settings: Settings, clock: FastClock) -> Engine | None:
    return DBOSEngine(settings.url, clock=clock) if settings.on_engine else None


def make_server(settings: Settings) -> MCPServer[Any]:
    ledger = LEDGERS[HERE] = Ledger(Path(settings.folder))
    clock = FastClock(settings.epoch, settings.speed, settings.ahead)
    store = cast("CallStore", Deadly(open_store(settings.url), ledger))
    return create_server(
        "faults",
        [journey],
        keys=["a secret of at least thirty-two bytes"],
        ttl=36_000,
        store=Durability(store, lease=LEASE, expire_after=36_000),
        clock=clock,
    )


def serve(settings: Settings, listener: socket.socket) -> None:
    """Run a worker."""
    app = make_server(settings).streamable_http_app(stateless_http=True)
    config = uvicorn.Config(app, log_level="critical", ws="none")
    anyio.run(uvicorn.Server(config).serve, [listener])
