"""A server, and an agent that calls its tool and dies before it records a round: two processes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, tool
from anabranch.agents import Agent, RemoteTools
from anabranch.mcp import Durability, create_server
from anabranch.messages import SampleReply, SampleRequest, ToolResultBlock
from anabranch.stores import open_stores
from anabranch.testing import MockModel, calls
from tests.mcp.harness import http

LEASE = 0.5
KEY = "a secret of thirty-two bytes, or more"


class Seats(BaseModel):
    number: int


def note(ledger: str, what: str) -> int:
    """Write a line, and return the number of equal lines."""
    path = Path(ledger)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")
    return path.read_text(encoding="utf-8").splitlines().count(what)


def noted(ledger: str) -> list[str]:
    path = Path(ledger)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


@tool
async def travel(ctx: BranchContext, ledger: str) -> str:
    """Reserve, ask the model, book, ask the user, and print."""
    await ctx.step(note, ledger, "reserve")
    name = (await ctx.sample("a name")).text
    await ctx.step(note, ledger, "book")
    answer = await ctx.elicit(Seats, f"How many, {name}?")
    await ctx.step(note, ledger, "print")
    return f"{name} {answer.action}"


class Fatal:
    """A store whose process dies at the first use after the server has noted ``what``."""

    def __init__(self, store: object, ledger: str, what: str) -> None:
        self._store = store
        self._ledger = ledger
        self._what = what

    def __getattr__(self, name: str) -> Any:
        if self._what in noted(self._ledger):
            os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._store, name)


def make_agent(folder: Path, remote: RemoteTools, fatal: str = "nothing") -> Agent:
    """Return an agent whose model calls the tool once, and writes the names that it uses to the ledger."""
    ledger = str(folder / "ledger")

    def decide(request: SampleRequest) -> SampleReply | str:
        if request.messages[-1].text == "a name":
            return f"Ida {note(ledger, 'named')}"
        for block in request.messages[-1].content:
            if isinstance(block, ToolResultBlock):
                return "".join(part.text for part in block.content if part.type == "text")
        return calls(("use", "travel", {"ledger": ledger}))

    stores = open_stores(f"sqlite:///{folder}/agent.db")
    call_store, tree_store = (cast("Any", Fatal(store, ledger, fatal)) for store in stores)
    policy = Durability(call_store, lease=LEASE)
    able, model = Capabilities(), MockModel(decide)
    return Agent(tree_store, model, tools=[remote], calls=policy, capabilities=able)


async def serve(folder: Callable[[], Path], _name: str, report: Callable[[object], None]) -> None:
    """Serve the tool, and report the server's address."""
    store = f"sqlite:///{folder()}/server.db"
    async with http(create_server("travel", [travel], store=store, keys=[KEY])) as url:
        report(url)
        await anyio.sleep_forever()


async def die(
    folder: Callable[[], Path], _name: str, report: Callable[[object], None], url: str, fatal: str
) -> None:
    """Run the turn until the turn or this process ends."""
    async with RemoteTools(url) as remote:
        agent = make_agent(folder(), remote, fatal)
        thread = await agent.begin()
        report(thread.id)
        await agent.say(thread.id, "Travel")
    report("survived")
